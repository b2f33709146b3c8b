// Which Recv gets which Send: tags, and the order of messages that have one tag.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "tests/comm/point_to_point.h"

namespace tutti {
namespace {

using PointToPointOrder = PointToPoint;

// All ranks send to all ranks, themselves included, with a tag for each length.
TEST_P(PointToPointOrder, EveryLengthComesFromEveryRank) {
  for (const int size : {1, 2, 3, 4, 5}) {
    std::vector<std::size_t> lengths = {0, 1, 1021, 65'537};
    if (size <= 2) lengths.push_back((8 << 20) + 3);
    RunWorld(size, options(), [&](Communicator& comm) {
      std::vector<std::vector<std::uint8_t>> in, out;
      std::vector<Work> works;
      const auto of_all = [&](auto&& post) {
        for (int tag = 0; tag < static_cast<int>(lengths.size()); ++tag) {
          for (Rank peer = 0; peer < size; ++peer) post(tag, peer, lengths[static_cast<std::size_t>(tag)]);
        }
      };
      of_all([&](int tag, Rank peer, std::size_t length) {
        out.push_back(MessageOf(length, comm.rank(), tag, peer));
        works.push_back(
            comm.Send(out.back().data(), static_cast<std::int64_t>(length), DType::kU8, peer, {.tag = tag}));
      });
      of_all([&](int tag, Rank peer, std::size_t length) {
        in.emplace_back(length);
        works.push_back(comm.Recv(in.back().data(), static_cast<std::int64_t>(length), DType::kU8, peer, {.tag = tag}));
      });
      WaitForAll(works);
      std::size_t at = 0;
      of_all([&](int tag, Rank peer, std::size_t length) {
        EXPECT_EQ(works[in.size() + at].source(), peer);
        EXPECT_TRUE(in[at++] == MessageOf(length, peer, tag, comm.rank())) << length << " bytes from " << peer;
      });
    });
  }
}

// Thousands of messages under way at once; the receives of the tag that was sent last are posted first.
TEST_P(PointToPointOrder, ManyMessagesOfEachTagKeepTheirOrder) {
  constexpr int kTags = 5;
  static constexpr std::size_t kMessages = 500;
  RunWorld(2, options(), [&](Communicator& comm) {
    const Rank peer = 1 - comm.rank();
    std::vector<std::int64_t> out(kTags * kMessages), in(kTags * kMessages, -1);
    std::iota(out.begin(), out.end(), 1'000'000 * comm.rank());
    const auto place = [](int tag, std::size_t number) { return static_cast<std::size_t>(tag) * kMessages + number; };
    std::vector<Work> works;
    for (std::size_t number = 0; number < kMessages; ++number) {
      for (int tag = 0; tag < kTags; ++tag) {
        works.push_back(comm.Send(&out[place(tag, number)], 1, DType::kI64, peer, {.tag = tag}));
      }
    }
    for (int tag = kTags - 1; tag >= 0; --tag) {
      for (std::size_t number = 0; number < kMessages; ++number) {
        works.push_back(comm.Recv(&in[place(tag, number)], 1, DType::kI64, peer, {.tag = tag}));
      }
    }
    WaitForAll(works);
    for (std::size_t i = 0; i < in.size(); ++i) {
      ASSERT_EQ(in[i], static_cast<std::int64_t>(i) + 1'000'000 * peer) << "message " << i;
    }
  });
}

// Long and short messages of one tag, some of which only announce themselves before they are received.
TEST_P(PointToPointOrder, LongAndShortMessagesOfOneTagKeepTheirOrder) {
  constexpr int kMessages = 60;
  const auto length_of = [](int number) {
    constexpr std::size_t kLengths[] = {300'000, 1, 0, 20'000, 7, 1'500'001};
    return kLengths[static_cast<std::size_t>(number) % std::size(kLengths)];
  };
  RunWorld(3, options(), [&](Communicator& comm) {
    const Rank next = (comm.rank() + 1) % 3;
    const Rank last = (comm.rank() + 2) % 3;
    std::vector<std::vector<std::uint8_t>> in(kMessages), out(kMessages);
    std::vector<Work> works;
    for (int i = 0; i < kMessages; ++i) {
      out[i] = MessageOf(length_of(i), comm.rank(), 0, i);
      works.push_back(comm.Send(out[i].data(), static_cast<std::int64_t>(out[i].size()), DType::kU8, next));
    }
    for (int i = 0; i < kMessages; ++i) {
      in[i].resize(length_of(i));
      works.push_back(comm.Recv(in[i].data(), static_cast<std::int64_t>(in[i].size()), DType::kU8, last));
    }
    WaitForAll(works);
    for (int i = 0; i < kMessages; ++i) EXPECT_TRUE(in[i] == MessageOf(length_of(i), last, 0, i)) << "message " << i;
  });
}

// The Send of tag 3 is made only after the Recv of tag 5, posted later, has ended.
TEST_P(PointToPointOrder, ATagIsReceivedWhileAnOlderReceiveOfAnotherTagWaits) {
  for (const std::int64_t count : {1, 500'000}) {
    RunWorld(2, options(), [&](Communicator& comm) {
      std::vector<float> three(static_cast<std::size_t>(count), 3.0f), five(static_cast<std::size_t>(count), 5.0f);
      std::vector<float> told(1);
      if (comm.rank() == 0) {
        EXPECT_EQ(comm.Send(five.data(), count, DType::kF32, 1, {.tag = 5}).Wait(), absl::OkStatus());
        EXPECT_EQ(comm.Recv(told.data(), 1, DType::kF32, 1, {.tag = kMaxTag}).Wait(), absl::OkStatus());
        EXPECT_EQ(comm.Send(three.data(), count, DType::kF32, 1, {.tag = 3}).Wait(), absl::OkStatus());
        return;
      }
      three.assign(three.size(), 0);
      five.assign(five.size(), 0);
      Work first = comm.Recv(three.data(), count, DType::kF32, 0, {.tag = 3});
      EXPECT_EQ(comm.Recv(five.data(), count, DType::kF32, 0, {.tag = 5}).Wait(), absl::OkStatus());
      EXPECT_FALSE(first.done());
      EXPECT_EQ(comm.Send(told.data(), 1, DType::kF32, 0, {.tag = kMaxTag}).Wait(), absl::OkStatus());
      EXPECT_EQ(first.Wait(), absl::OkStatus());
      EXPECT_EQ(three.back(), 3.0f);
      EXPECT_EQ(five.back(), 5.0f);
    });
  }
}

TEST_P(PointToPointOrder, ThreadsWithATagEachDoNotDisturbEachOther) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 200;
  RunWorld(2, options(), [&](Communicator& comm) {
    const Rank peer = 1 - comm.rank();
    std::vector<std::thread> threads;
    threads.reserve(kThreads);
    for (int tag = 0; tag < kThreads; ++tag) {
      threads.emplace_back([&comm, peer, tag] {
        for (std::int64_t round = 0; round < kRounds; ++round) {
          const std::int64_t sent = 1000 * tag + round;
          std::int64_t received = -1;
          Work send = comm.Send(&sent, 1, DType::kI64, peer, {.tag = tag});
          EXPECT_EQ(comm.Recv(&received, 1, DType::kI64, peer, {.tag = tag}).Wait(), absl::OkStatus());
          EXPECT_EQ(send.Wait(), absl::OkStatus());
          ASSERT_EQ(received, sent);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
}

// Two groups over the same ranks use equal tags, while collectives run; the numbers of a group differ between its
// ranks.
TEST_P(PointToPointOrder, GroupsHaveTheirOwnTags) {
  constexpr int kMessages = 50;
  RunWorld(3, options(), [&](Communicator& world) {
    if (world.rank() == 1) {
      ASSERT_TRUE(world.Group({1}, "alone").ok());  // from here on the numbers of groups differ between ranks
    }
    absl::StatusOr<std::unique_ptr<Communicator>> a = world.Group({0, 1, 2}, "a");
    absl::StatusOr<std::unique_ptr<Communicator>> b = world.Group({2, 1, 0}, "b");
    ASSERT_TRUE(a.ok() && b.ok());
    std::vector<std::int64_t> sums(kMessages, 1);
    std::vector<std::int64_t> out(3 * kMessages), in(3 * kMessages);
    std::iota(out.begin(), out.end(), 0);
    std::vector<Work> works;
    Communicator* const groups[] = {b->get(), &world, a->get()};
    for (std::size_t i = 0; i < kMessages; ++i) {
      for (std::size_t g = 0; g < 3; ++g) {
        works.push_back(groups[g]->Recv(&in[g * kMessages + i], 1, DType::kI64, kAnySource, {.tag = 1}));
      }
    }
    for (std::size_t i = 0; i < kMessages; ++i) {
      for (const std::size_t g : {2u, 0u, 1u}) {
        const Rank next = (groups[g]->rank() + 1) % 3;
        works.push_back(groups[g]->Send(&out[g * kMessages + i], 1, DType::kI64, next, {.tag = 1}));
      }
      works.push_back(world.AllReduce(&sums[i], &sums[i], 1, DType::kI64, ReduceOp::kSum));
    }
    WaitForAll(works);
    EXPECT_EQ(in, out);
    EXPECT_EQ(sums, std::vector<std::int64_t>(kMessages, 3));
  });
}

TEST_P(PointToPointOrder, ABoundSendMayHaveAnotherTagEachTime) {
  RunWorld(2, options(), [&](Communicator& comm) {
    std::int64_t value = 0;
    const bool sends = comm.rank() == 0;
    const CollectiveSpec spec = {.collective = sends ? Collective::kSend : Collective::kRecv,
                                 .dtype = DType::kI64,
                                 .count = 1,
                                 .root = sends ? 1 : kAnySource};
    absl::StatusOr<BoundPlan> bound = comm.Bind(spec, {.in = &value, .out = sends ? nullptr : &value});
    ASSERT_TRUE(bound.ok()) << bound.status();
    for (const int tag : {4, 0, 17}) {
      if (sends) value = tag;
      Work work = bound->Start({.tag = tag});
      EXPECT_EQ(work.Wait(), absl::OkStatus());
      EXPECT_EQ(value, tag);
      EXPECT_EQ(work.source(), sends ? kAnySource : 0);
    }
    EXPECT_EQ(bound->Start({.tag = -1}).Wait().code(), absl::StatusCode::kInvalidArgument);
  });
}

INSTANTIATE_TEST_SUITE_P(, PointToPointOrder, ::testing::ValuesIn(WorldKinds()), NameOfWorldKind);

}  // namespace
}  // namespace tutti
