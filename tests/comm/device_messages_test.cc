// Messages between the memory of GPUs: Send, Recv, SendRecv and AllToAllV; GPU and NCCL are fakes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/comm/native_messages.h"
#include "tests/harness/fake_cuda.h"
#include "tests/harness/fake_device.h"
#include "tests/harness/rank_barrier.h"
#include "tests/harness/world.h"
#include "tutti/communicator.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

// The number of elements that `from` sends to `to`: some are none.
std::int64_t CountOf(Rank from, Rank to) { return (3 * from + 5 * to) % 4 * 7; }
float ValueOf(Rank from, Rank to, std::int64_t i) { return static_cast<float>(from * 1000 + to * 100 + i % 90); }

struct Blocks {
  explicit Blocks(const Communicator& comm) {
    for (Rank peer = 0; peer < comm.size(); ++peer) {
      send.push_back(CountOf(comm.rank(), peer));
      recv.push_back(CountOf(peer, comm.rank()));
      for (std::int64_t i = 0; i < send.back(); ++i) input.push_back(ValueOf(comm.rank(), peer, i));
      for (std::int64_t i = 0; i < recv.back(); ++i) expected.push_back(ValueOf(peer, comm.rank(), i));
    }
  }

  std::vector<std::int64_t> send;
  std::vector<std::int64_t> recv;
  std::vector<float> input;
  std::vector<float> expected;
};

std::vector<float> Values(const FakeMemory& memory, std::size_t count) {
  return {memory.floats(), memory.floats() + count};
}

TEST(DeviceMessagesTest, AllToAllVOfEveryWorld) {
  for (const int ranks_per_node : {0, 2}) {
    for (int size = 1; size <= 8; ++size) {
      const FakeCudaCounts before = FakeCuda::Counts();
      RunWorld(size, OnDevices(ranks_per_node), [](Communicator& comm) {
        const Blocks blocks(comm);
        const FakeMemory in(comm.rank(), static_cast<std::int64_t>(blocks.input.size()) * 4);
        const FakeMemory out(comm.rank(), static_cast<std::int64_t>(blocks.expected.size()) * 4);
        std::copy(blocks.input.begin(), blocks.input.end(), in.floats());
        for (int call = 0; call < 2; ++call) {
          std::fill_n(out.floats(), blocks.expected.size(), -1.0f);
          ASSERT_EQ(comm.AllToAllV(in.data(), blocks.send, out.data(), blocks.recv, DType::kF32).Wait(),
                    absl::OkStatus());
          EXPECT_EQ(Values(out, blocks.expected.size()), blocks.expected);
        }
        absl::StatusOr<BoundPlan> bound =
            comm.Bind({.collective = Collective::kAllToAllV, .send_counts = blocks.send, .recv_counts = blocks.recv},
                      {.in = in.data(), .out = out.data()});
        ASSERT_TRUE(bound.ok()) << bound.status();
        for (int run = 0; run < 3; ++run) {
          std::fill_n(out.floats(), blocks.expected.size(), -1.0f);
          ASSERT_EQ(bound->Start().Wait(), absl::OkStatus());
          EXPECT_EQ(Values(out, blocks.expected.size()), blocks.expected);
        }
      });
      // One group of messages on each rank, whatever the number of ranks.
      EXPECT_LE((FakeCuda::Counts() - before).collectives, 5 * size);
    }
  }
}

// A rank without any element has no buffers: its stream says that the call is one of the GPU's.
TEST(DeviceMessagesTest, ARankWithoutElementsTakesPart) {
  RunWorld(3, OnDevices(), [](Communicator& comm) {
    const FakeMemory memory(comm.rank(), 32);
    CUstream_st* stream = nullptr;
    ASSERT_EQ(FakeCuda::Table().create_stream(&stream), kCudaSuccess);
    memory.floats()[0] = static_cast<float>(comm.rank() + 1);
    std::vector<std::int64_t> counts(3, 0);
    if (comm.rank() < 2) counts[static_cast<std::size_t>(1 - comm.rank())] = 1;
    void* const in = comm.rank() < 2 ? memory.data() : nullptr;
    void* const out = comm.rank() < 2 ? memory.data() + 4 : nullptr;
    Work work = comm.AllToAllV(in, counts, out, counts, DType::kF32, {.stream = stream});
    ASSERT_EQ(work.WaitOnStream(stream), absl::OkStatus());
    ASSERT_EQ(FakeCuda::Table().synchronize_stream(stream), kCudaSuccess);
    if (comm.rank() < 2) {
      EXPECT_EQ(memory.floats()[1], static_cast<float>(2 - comm.rank()));
    }
    EXPECT_EQ(work.Wait(), absl::OkStatus());
    FakeCuda::Table().destroy_stream(stream);
  });
}

// The default stream has a name for a rank without any element, whose peers name none.
TEST(DeviceMessagesTest, ARankWithoutElementsTakesPartOnTheDefaultStream) {
  RunWorld(3, OnDevices(), [](Communicator& comm) {
    const FakeMemory memory(comm.rank(), 8);
    memory.floats()[0] = static_cast<float>(comm.rank() + 1);
    std::vector<std::int64_t> counts(3, 0);
    if (comm.rank() < 2) counts[static_cast<std::size_t>(1 - comm.rank())] = 1;
    const bool has_elements = comm.rank() < 2;
    const absl::Status status =
        comm.AllToAllV(has_elements ? memory.data() : nullptr, counts, has_elements ? memory.data() + 4 : nullptr,
                       counts, DType::kF32, {.stream = has_elements ? nullptr : FakeCuda::LegacyStream()})
            .Wait();
    EXPECT_EQ(status, absl::OkStatus());
    if (has_elements) {
      EXPECT_EQ(memory.floats()[1], static_cast<float>(2 - comm.rank()));
    }
  });
}

// Send and Recv in a ring, which calls on streams come through in turn; messages of two ranks keep their order, and
// those without elements are none.
TEST(DeviceMessagesTest, MessagesGoRound) {
  for (const int ranks_per_node : {0, 1}) {
    RunWorld(4, OnDevices(ranks_per_node), [](Communicator& comm) {
      const Rank to = (comm.rank() + 1) % comm.size();
      const Rank from = (comm.rank() + 3) % comm.size();
      const FakeMemory memory(comm.rank(), 4000);
      for (const std::int64_t count : {1, 0, 500, 7}) {
        const FakeMemory arrived(comm.rank(), 4000);
        std::fill_n(memory.floats(), count, static_cast<float>(comm.rank() * 10 + count));
        const auto send = [&] { return comm.Send(memory.data(), count, DType::kF32, to); };
        const auto recv = [&] { return comm.Recv(arrived.data(), count, DType::kF32, from); };
        const bool first = comm.rank() % 2 == 0;
        Work one = first ? send() : recv();
        Work two = first ? recv() : send();
        EXPECT_EQ(two.Wait(), absl::OkStatus());
        EXPECT_EQ(one.Wait(), absl::OkStatus());
        EXPECT_EQ((first ? two : one).source(), from);
        EXPECT_EQ((first ? one : two).source(), kAnySource);
        if (count > 0) {
          EXPECT_EQ(arrived.floats()[count - 1], static_cast<float>(from * 10 + count));
        }
      }
    });
  }
}

TEST(DeviceMessagesTest, BoundMessagesAllocateNothing) {
  RunWorld(2, OnDevices(), [](Communicator& comm) {
    const FakeMemory memory(comm.rank(), 400);
    const bool sends = comm.rank() == 0;
    absl::StatusOr<BoundPlan> bound =
        comm.Bind({.collective = sends ? Collective::kSend : Collective::kRecv, .count = 100, .root = 1 - comm.rank()},
                  {.in = sends ? memory.data() : nullptr, .out = sends ? nullptr : memory.data()});
    ASSERT_TRUE(bound.ok()) << bound.status();
    ASSERT_EQ(comm.Barrier().Wait(), absl::OkStatus());
    const FakeCudaCounts before = FakeCuda::Counts();
    for (int run = 1; run <= 5; ++run) {
      if (sends) std::fill_n(memory.floats(), 100, static_cast<float>(run));
      ASSERT_EQ(bound->Start().Wait(), absl::OkStatus());
      EXPECT_EQ(memory.floats()[99], static_cast<float>(run));
      ASSERT_EQ(comm.Barrier().Wait(), absl::OkStatus());
    }
    const FakeCudaCounts counts = FakeCuda::Counts() - before;
    ASSERT_EQ(comm.Barrier().Wait(), absl::OkStatus());  // the counts are those of both ranks
    EXPECT_EQ(counts.allocations, 0);
    EXPECT_EQ(counts.events, 0);
    EXPECT_EQ(counts.synchronizations, 0);
    const absl::Status tagged = bound->Start({.tag = 1}).Wait();
    EXPECT_EQ(tagged.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(tagged.message()), HasSubstr("tag 1 must be 0 on the memory of a GPU"));
  });
}

// All ranks send to all, several messages to each and some to themselves, at once: one launch.
TEST(DeviceMessagesTest, SendRecvGoesInAllDirectionsAtOnce) {
  for (const int size : {1, 2, 3, 5}) {
    RunWorld(size, OnDevices(), [](Communicator& comm) {
      constexpr std::int64_t kMax = 16;
      const std::int64_t n = comm.size();
      const FakeMemory in(comm.rank(), n * 2 * kMax * 4);
      const FakeMemory out(comm.rank(), n * 2 * kMax * 4);
      ASSERT_EQ(comm.Barrier().Wait(), absl::OkStatus());
      const auto place = [&](const FakeMemory& memory, Rank peer, int message) {
        return memory.floats() + (2 * peer + message) * kMax;
      };
      std::vector<NativeCall> calls;
      for (int run = 0; run < 3; ++run) {
        calls.clear();
        for (Rank peer = 0; peer < comm.size(); ++peer) {
          for (int message = 0; message < 2; ++message) {
            const std::int64_t sent = (comm.rank() + peer + message) % 3;
            std::fill_n(place(in, peer, message), sent, ValueOf(comm.rank(), peer, message + run));
            calls.push_back(SendOf(place(in, peer, message), sent, peer));
            calls.push_back(RecvOf(place(out, peer, message), sent, peer));
          }
        }
        ASSERT_EQ(comm.SendRecv(calls).Wait(), absl::OkStatus());
        for (Rank peer = 0; peer < comm.size(); ++peer) {
          for (int message = 0; message < 2; ++message) {
            const std::int64_t received = (comm.rank() + peer + message) % 3;
            for (std::int64_t i = 0; i < received; ++i) {
              EXPECT_EQ(place(out, peer, message)[i], ValueOf(peer, comm.rank(), message + run));
            }
          }
        }
      }
      ASSERT_EQ(comm.Barrier().Wait(), absl::OkStatus());
      const FakeCudaCounts before = FakeCuda::Counts();
      ASSERT_EQ(comm.Barrier().Wait(), absl::OkStatus());
      ASSERT_EQ(comm.SendRecv(calls).Wait(), absl::OkStatus());
      ASSERT_EQ(comm.Barrier().Wait(), absl::OkStatus());
      const FakeCudaCounts counts = FakeCuda::Counts() - before;
      EXPECT_EQ(counts.allocations, 0);
      EXPECT_EQ(counts.events, 0);
      EXPECT_EQ(counts.collectives, comm.size() > 1 ? comm.size() : 0);
      ASSERT_EQ(comm.Barrier().Wait(), absl::OkStatus());
    });
  }
}

// The messages of SendRecv meet those that the peer sends and receives one by one, once NCCL has connected the two.
TEST(DeviceMessagesTest, SendRecvMeetsSingleMessages) {
  RunWorld(2, OnDevices(), [](Communicator& comm) {
    const FakeMemory memory(comm.rank(), 16);
    memory.floats()[0] = static_cast<float>(comm.rank());
    const Rank peer = 1 - comm.rank();
    const std::vector<NativeCall> calls = {SendOf(memory.data(), 1, peer), RecvOf(memory.data() + 4, 1, peer)};
    ASSERT_EQ(comm.SendRecv(calls).Wait(), absl::OkStatus());
    memory.floats()[1] = -1;
    if (comm.rank() == 0) {
      ASSERT_EQ(comm.SendRecv(calls).Wait(), absl::OkStatus());
      EXPECT_EQ(memory.floats()[1], 1.0f);
    } else {
      Work recv = comm.Recv(memory.data() + 4, 1, DType::kF32, 0);
      EXPECT_EQ(comm.SendRecv({}).Wait(), absl::OkStatus());
      EXPECT_EQ(comm.Send(memory.data(), 1, DType::kF32, 0).Wait(), absl::OkStatus());
      EXPECT_EQ(recv.Wait(), absl::OkStatus());
      EXPECT_EQ(memory.floats()[1], 0.0f);
    }
  });
}

// Each rank's Send would have to end before its Recv begins: the deadline ends what NCCL would wait in for ever.
TEST(DeviceMessagesTest, TwoSendsThatWaitForEachOtherEndAtTheDeadline) {
  for (const int ranks_per_node : {0, 1}) {
    RunWorld(2, OnDevices(ranks_per_node), [](Communicator& comm) {
      const FakeMemory memory(comm.rank(), 800);
      Work send = comm.Send(memory.data(), 100, DType::kF32, 1 - comm.rank(), {.timeout = absl::Milliseconds(400)});
      Work recv = comm.Recv(memory.data() + 400, 100, DType::kF32, 1 - comm.rank());
      const absl::Status status = recv.Wait();
      EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("send:message send f32 count=100"));
      EXPECT_THAT(std::string(status.message()), HasSubstr("waited 400ms for rank"));
      EXPECT_EQ(send.Wait(), status);
    });
  }
}

// Nobody waits for the Recv on the host, and its deadline counts nevertheless.
TEST(DeviceMessagesTest, ARecvThatNoMessageMeetsEndsAtTheDeadline) {
  RankBarrier ranks(3);
  RunWorld(3, OnDevices(0, &ranks), [&](Communicator& comm) {
    const FakeMemory memory(comm.rank(), 8);
    if (comm.rank() == 1) {
      EXPECT_EQ(comm.Send(memory.data(), 1, DType::kF32, 0).Wait(), absl::OkStatus());
    }
    if (comm.rank() > 0) return ranks.Wait();
    CUstream_st* stream = nullptr;
    ASSERT_EQ(FakeCuda::Table().create_stream(&stream), kCudaSuccess);
    // NCCL connects to rank 1.
    ASSERT_EQ(comm.Recv(memory.data(), 1, DType::kF32, 1).Wait(), absl::OkStatus());
    Work work = comm.Recv(memory.data(), 1, DType::kF32, 1, {.timeout = absl::Milliseconds(400)});
    ASSERT_EQ(work.WaitOnStream(stream), absl::OkStatus());
    EXPECT_EQ(FakeCuda::Table().synchronize_stream(stream), kCudaSuccess);
    const absl::Status status = work.Wait();
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("for rank 1 in call 1, recv:message recv f32 count=1"));
    ranks.Wait();
    FakeCuda::Table().destroy_stream(stream);
  });
}

// The first message from a rank is enqueued when NCCL has connected to that rank.
TEST(DeviceMessagesTest, AFirstRecvThatNoMessageMeetsEndsAtTheDeadline) {
  RankBarrier ranks(3);
  RunWorld(3, OnDevices(0, &ranks), [&](Communicator& comm) {
    if (comm.rank() > 0) return ranks.Wait();
    const FakeMemory memory(comm.rank(), 8);
    Work work = comm.Recv(memory.data(), 1, DType::kF32, 1, {.timeout = absl::Milliseconds(400)});
    const absl::Status status = work.WaitOnStream(nullptr);
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("for rank 1 in call 0, recv:message recv f32 count=1"));
    EXPECT_EQ(work.Wait(), status);
    ranks.Wait();
  });
}

TEST(DeviceMessagesTest, OtherLengthsAreNamed) {
  RunWorld(2, OnDevices(), [](Communicator& comm) {
    const FakeMemory memory(comm.rank(), 80);
    const absl::Status status = comm.rank() == 0 ? comm.Send(memory.data(), 4, DType::kF32, 1).Wait()
                                                 : comm.Recv(memory.data(), 5, DType::kF32, 0).Wait();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 0 sends 16 bytes to rank 1, which receives 20"));
  });
}

// NCCL leaves messages without bytes out, so the other end would wait until the deadline.
TEST(DeviceMessagesTest, AMessageOfNoneAndOneOfSomeAreNamed) {
  RunWorld(2, OnDevices(), [](Communicator& comm) {
    const FakeMemory memory(comm.rank(), 80);
    const std::vector<std::int64_t> none = {0, 0};
    const std::vector<std::int64_t> some = {3, 0};
    const absl::Status status =
        comm.AllToAllV(memory.data(), none, memory.data() + 40, comm.rank() == 0 ? none : some, DType::kF32).Wait();
    if (comm.rank() == 0) return;  // has nothing to wait for
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 0 sends 0 bytes to rank 1, which receives 12"));
  });
}

// A rank may leave once its messages are on their way, and not before it has made its calls.
TEST(DeviceMessagesTest, ARankThatLeavesWithoutItsCallIsNamed) {
  RunWorld(2, OnDevices(), [](Communicator& comm) {
    const FakeMemory memory(comm.rank(), 8);
    if (comm.rank() == 1) {
      EXPECT_EQ(comm.Send(memory.data(), 1, DType::kF32, 0).Wait(), absl::OkStatus());
      return;
    }
    EXPECT_EQ(comm.Recv(memory.data(), 1, DType::kF32, 1).Wait(), absl::OkStatus());
    const absl::Status status = comm.Recv(memory.data(), 1, DType::kF32, 1).Wait();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1 has left"));
  });
}

TEST(DeviceMessagesTest, WhatNcclDoesNotDoIsRefused) {
  RunWorld(2, OnDevices(), [](Communicator& comm) {
    const FakeMemory memory(comm.rank(), 80);
    std::vector<float> host(2);
    void* const data = memory.data();
    const auto expect = [](Work work, absl::StatusCode code, const char* text) {
      const absl::Status status = work.Wait();
      EXPECT_EQ(status.code(), code) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr(text));
    };
    const Rank peer = 1 - comm.rank();
    const auto invalid = absl::StatusCode::kInvalidArgument;
    expect(comm.Send(data, 1, DType::kF32, peer, {.tag = 3}), invalid, "tag 3 must be 0 on the memory of a GPU");
    expect(comm.Send(data, 1, DType::kF32, comm.rank()), invalid, "give Communicator::SendRecv both");
    expect(comm.Recv(data, 1, DType::kF32, kAnySource), absl::StatusCode::kUnimplemented, "name the sender");
    const auto send_recv = [&](const NativeCall& call, const CallOptions& options = {}) {
      return comm.SendRecv({&call, 1}, options);
    };
    expect(send_recv(RecvOf(data, 1, kAnySource)), absl::StatusCode::kUnimplemented, "name the sender");
    expect(send_recv(SendOf(data, 1, comm.rank())), invalid, "sends itself 1 messages and receives 0");
    expect(send_recv(SendOf(data, 1, 7)), invalid, "7");
    expect(send_recv(SendOf(nullptr, 1, peer)), invalid, "src is null");
    expect(send_recv(SendOf(data, -1, peer)), invalid, "count");
    expect(send_recv(SendOf(host.data(), 1, peer)), invalid, "is host memory");
    expect(send_recv({.collective = Collective::kAllReduce}), invalid, "must be send or recv");
    expect(send_recv(SendOf(data, 1, peer), {.tag = 1}), invalid, "tag 1 must be 0");
    // The communicator goes on.
    memory.floats()[0] = 1;
    EXPECT_EQ(comm.AllReduce(data, data, 1, DType::kF32, ReduceOp::kSum).Wait(), absl::OkStatus());
    EXPECT_EQ(memory.floats()[0], 2.0f);
  });
  RunWorld(1, {},
           [](Communicator& comm) { EXPECT_EQ(comm.SendRecv({}).Wait().code(), absl::StatusCode::kUnimplemented); });
}

}  // namespace
}  // namespace tutti
