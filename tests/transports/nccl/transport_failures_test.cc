// What goes wrong: ranks that do not come, errors of NCCL, groups that wait for each other, aborts that hang.
#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "tests/transports/nccl/nccl_world.h"

namespace tutti::nccl {
namespace {

using testing::HasSubstr;

NativeCall AllReduce(std::vector<float>& data) {
  return {.count = static_cast<std::int64_t>(data.size()), .src = data.data(), .dst = data.data()};
}
NativeCall Send(std::vector<float>& data, Rank to) {
  return {.collective = Collective::kSend, .count = 1, .root = to, .src = data.data()};
}
NativeCall Recv(std::vector<float>& data, Rank from) {
  return {.collective = Collective::kRecv, .count = 1, .root = from, .dst = data.data()};
}

void ExpectError(const absl::Status& status, absl::StatusCode code, const std::string& text) {
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(text));
}

// The rank leaves without the agreement of the others.
void Leave(NcclRank& self) {
  EXPECT_EQ(self.transport->Abort(absl::AbortedError("the test ends"), Later()), absl::OkStatus());
  self.transport = nullptr;
}

TEST(NcclTransportFailuresTest, ARankThatDoesNotJoinIsADeadline) {
  const int living = FakeNccl::LivingCommunicators();
  const UniqueId id = NewUniqueId(FakeNccl::Table()).value();
  const ConnectOptions options = {.nccl = &FakeNccl::Table(), .cuda = &FakeCuda::Table(), .size = 3, .id = id};
  ExpectError(Connect(options, Soon()).status(), absl::StatusCode::kDeadlineExceeded,
              "joining a communicator of 3 ranks for the other ranks");
  EXPECT_EQ(FakeNccl::LivingCommunicators(), living);
}

// NCCL_COMM_BLOCKING=1 in the environment lets NCCL wait where it was told not to.
TEST(NcclTransportFailuresTest, ARankThatDoesNotJoinIsADeadlineAlsoWhereTheEnvironmentLetsNcclWait) {
  static const Library waits = [] {
    Library table = FakeNccl::Table();
    table.comm_init_rank_config = [](Comm* comm, int size, UniqueId id, int rank, Config* config) {
      config->blocking = 1;
      return FakeNccl::Table().comm_init_rank_config(comm, size, id, rank, config);
    };
    return table;
  }();
  const UniqueId id = NewUniqueId(waits).value();
  const int living = FakeNccl::LivingCommunicators();
  ConnectOptions options = {.nccl = &waits, .cuda = &FakeCuda::Table(), .size = 2, .id = id};
  ExpectError(Connect(options, Soon()).status(), absl::StatusCode::kDeadlineExceeded,
              "joining a communicator of 2 ranks");
  // The thread that was left behind ends.
  Comm other = nullptr;
  Config config;
  EXPECT_EQ(waits.comm_init_rank_config(&other, 2, id, 1, &config), Result::kSuccess);
  while (FakeNccl::LivingCommunicators() < living + 2) std::this_thread::yield();
}

TEST(NcclTransportFailuresTest, JoiningWronglyIsAnError) {
  const UniqueId id = NewUniqueId(FakeNccl::Table()).value();
  ConnectOptions options = {.nccl = &FakeNccl::Table(), .cuda = &FakeCuda::Table(), .rank = 2, .size = 2, .id = id};
  ExpectError(Connect(options, Later()).status(), absl::StatusCode::kInvalidArgument, "rank 2 must be in 0…1");
  options.rank = 0;
  options.device = kFakeDevices;
  ExpectError(Connect(options, Later()).status(), absl::StatusCode::kInternal, "rank 0: device 8");
  options.device = 0;
  options.size = 1;
  const auto alone = Connect(options, Later());
  ASSERT_TRUE(alone.ok());
  ExpectError(Connect(options, Later()).status(), absl::StatusCode::kFailedPrecondition, "rank 0: joining");
}

TEST(NcclTransportFailuresTest, MistakesInACallAreNotSticky) {
  NcclWorld(2).Run([](NcclRank& self) {
    std::vector<float> data(4, 1);
    NativeCall call = AllReduce(data);
    call.count = -1;
    ExpectError(self.Perform({call}), absl::StatusCode::kInvalidArgument, "count");
    call = AllReduce(data);
    call.src = nullptr;
    ExpectError(self.Perform({call}), absl::StatusCode::kInvalidArgument, "src must not be null");
    call = AllReduce(data);
    call.dtype = DType::kBool;
    ExpectError(self.Perform({call}), absl::StatusCode::kUnimplemented, "bool");
    ExpectError(self.Perform({Send(data, 2)}), absl::StatusCode::kInvalidArgument, "0…1");
    ExpectError(self.Perform({Recv(data, kAnySource)}), absl::StatusCode::kUnimplemented, "from one rank only");
    EXPECT_EQ(self.Perform({AllReduce(data)}), absl::OkStatus());
    EXPECT_EQ(data, std::vector<float>(4, 2));
  });
}

// NCCL waits for the peers in the first group of a kind, and Enqueue does not.
TEST(NcclTransportFailuresTest, NothingMayFollowAGroupThatIsNotOnItsStream) {
  std::atomic<bool> first_has_looked = false;
  NcclWorld(2).Run([&](NcclRank& self) {
    std::vector<float> data(1, 1);
    if (self.rank == 1) {
      while (!first_has_looked.load()) std::this_thread::yield();
    }
    EXPECT_EQ(self.transport->Enqueue({AllReduce(data)}, self.stream), absl::OkStatus());
    if (self.rank == 0) {
      EXPECT_EQ(self.transport->Ready().value(), false);
      EXPECT_EQ(FakeCuda::Table().query_stream(self.stream), kCudaSuccess);
      for (const absl::Status& early :
           {self.transport->Enqueue({AllReduce(data)}, self.stream), self.transport->Register(&data, 4).status(),
            self.transport->Split(0, 0, Later()).status(), self.transport->Shrink({1}, Later()).status()}) {
        ExpectError(early, absl::StatusCode::kFailedPrecondition, "wait until Ready is true");
      }
      first_has_looked = true;
    }
    EXPECT_EQ(self.AwaitReady(*self.transport), absl::OkStatus());
    EXPECT_EQ(self.Perform({AllReduce(data)}), absl::OkStatus());
    EXPECT_EQ(data[0], 4);
  });
}

// Ranks that never meet in NCCL's call, because each sends first, are told by NCCL in the end.
TEST(NcclTransportFailuresTest, FirstMessagesThatWaitForEachOtherAreADeadlock) {
  const FakeNccl::With settings({.patience = absl::Milliseconds(100)});
  NcclWorld(2).Run([](NcclRank& self) {
    std::vector<float> out(1, 1);
    EXPECT_EQ(self.transport->Enqueue({Send(out, 1 - self.rank)}, self.stream), absl::OkStatus());
    const absl::Status error = self.AwaitReady(*self.transport);
    ExpectError(error, absl::StatusCode::kInternal, "a deadlock");
    EXPECT_EQ(self.transport->Enqueue({Send(out, 1 - self.rank)}, self.stream), error);
    Leave(self);
  });
}

TEST(NcclTransportFailuresTest, EnqueueingDoesNotWaitForTheDevice) {
  const FakeCudaCounts before = FakeCuda::Counts();
  NcclWorld(2).Run([&](NcclRank& self) {
    std::vector<float> data(1, 1);
    for (int i = 0; i < 10; ++i) {
      EXPECT_EQ(self.transport->Enqueue({AllReduce(data)}, self.stream), absl::OkStatus());
      EXPECT_EQ(self.AwaitReady(*self.transport), absl::OkStatus());
    }
    EXPECT_EQ((FakeCuda::Counts() - before).synchronizations, 0);
    // Each rank waits for the other before its own synchronization ends the test.
    EXPECT_EQ(self.Perform({AllReduce(data)}), absl::OkStatus());
    EXPECT_EQ(data[0], 2048);
  });
  EXPECT_EQ((FakeCuda::Counts() - before).collectives, 22);
}

TEST(NcclTransportFailuresTest, RanksThatMakeDifferentCallsGetAnError) {
  NcclWorld(2).Run([](NcclRank& self) {
    std::vector<float> data(static_cast<std::size_t>(4 + self.rank), 1);
    ExpectError(self.Perform({AllReduce(data)}), absl::StatusCode::kFailedPrecondition, "rank 1 has count 5");
    Leave(self);
  });
}

TEST(NcclTransportFailuresTest, TwoGroupsThatWaitForEachOtherAreADeadlock) {
  std::optional<FakeNccl::With> settings;
  std::atomic<bool> impatient = false;
  NcclWorld(2).Run([&](NcclRank& self) {
    std::vector<float> out(1, 1);
    std::vector<float> in(1);
    const Rank peer = 1 - self.rank;
    EXPECT_EQ(self.Perform({Send(out, peer), Recv(in, peer)}), absl::OkStatus());
    if (self.rank == 0) {
      settings.emplace(FakeNccl::Settings{.patience = absl::Milliseconds(100)});
      impatient = true;
    }
    while (!impatient.load()) std::this_thread::yield();
    EXPECT_EQ(self.transport->Enqueue({Send(out, peer)}, self.stream), absl::OkStatus());
    EXPECT_EQ(self.AwaitReady(*self.transport), absl::OkStatus());
    absl::Status error = self.transport->Enqueue({Recv(in, peer)}, self.stream);
    while (error.ok()) error = self.transport->Ready().status();
    ExpectError(error, absl::StatusCode::kInternal, "a deadlock");
    Leave(self);
  });
}

TEST(NcclTransportFailuresTest, AnErrorOfNcclIsSticky) {
  const NcclWorld world(3);
  FakeNccl::Inject(world.id(), {.rank = 1, .launch = 1, .error = Result::kRemoteError});
  const int living = FakeNccl::LivingCommunicators();
  world.Run([](NcclRank& self) {
    std::vector<float> data(1, 1);
    EXPECT_EQ(self.Perform({AllReduce(data)}), absl::OkStatus());
    if (self.rank == 1) {
      const absl::Status error = self.Perform({AllReduce(data)});
      ExpectError(error, absl::StatusCode::kUnavailable, "rank 1: ");
      EXPECT_THAT(std::string(error.message()), HasSubstr("remote process exited"));
      EXPECT_THAT(std::string(error.message()), HasSubstr("an injected fault"));
      EXPECT_EQ(self.transport->Enqueue({AllReduce(data)}, self.stream), error);
      EXPECT_EQ(self.transport->Ready().status(), error);
      EXPECT_EQ(self.transport->Abort(absl::AbortedError("later"), Later()), absl::OkStatus());
      EXPECT_EQ(self.transport->Ready().status(), error);
    } else {
      // Nobody tells the others: they find it by their deadline.
      EXPECT_EQ(self.transport->Enqueue({AllReduce(data)}, self.stream), absl::OkStatus());
      EXPECT_EQ(self.AwaitReady(*self.transport), absl::OkStatus());
    }
    Leave(self);
    EXPECT_EQ(FakeCuda::Table().synchronize_stream(self.stream), kCudaSuccess);
  });
  EXPECT_EQ(FakeNccl::LivingCommunicators(), living);
}

TEST(NcclTransportFailuresTest, AbortEndsWhatWaitsForARankThatNeverComes) {
  NcclWorld(3).Run([](NcclRank& self) {
    std::vector<float> data(1, 1);
    EXPECT_EQ(self.Perform({AllReduce(data)}), absl::OkStatus());
    if (self.rank != 2) {
      for (int i = 0; i < 3; ++i) {  // the second and third wait behind the first
        EXPECT_EQ(self.transport->Enqueue({AllReduce(data)}, self.stream), absl::OkStatus());
        EXPECT_EQ(self.AwaitReady(*self.transport), absl::OkStatus());
      }
      EXPECT_EQ(FakeCuda::Table().query_stream(self.stream), kCudaNotReady);
    }
    const absl::Status cause = absl::DeadlineExceededError("rank 2 did not come");
    EXPECT_EQ(self.transport->Abort(cause, Later()), absl::OkStatus());
    EXPECT_EQ(FakeCuda::Table().synchronize_stream(self.stream), kCudaSuccess);
    EXPECT_EQ(self.transport->Ready().status(), cause);
    EXPECT_EQ(self.transport->Enqueue({AllReduce(data)}, self.stream), cause);
    EXPECT_EQ(self.transport->Abort(absl::AbortedError("again"), Later()), absl::OkStatus());
    EXPECT_EQ(self.transport->Ready().status(), cause);
    self.transport = nullptr;
  });
}

// The communicator is freed when no thread is in a call of it any more: NcclWorld looks for that.
TEST(NcclTransportFailuresTest, AbortEndsACallThatWaitsInNccl) {
  const int living = FakeNccl::LivingCommunicators();
  NcclWorld(3).Run([](NcclRank& self) {
    std::vector<float> data(1, 1);
    if (self.rank != 2) {
      EXPECT_EQ(self.transport->Enqueue({AllReduce(data)}, self.stream), absl::OkStatus());
      EXPECT_EQ(self.transport->Ready().value(), false);
    }
    const absl::Status cause = absl::DeadlineExceededError("rank 2 did not come");
    EXPECT_EQ(self.transport->Abort(cause, Later()), absl::OkStatus());
    EXPECT_EQ(self.transport->Ready().status(), cause);
    EXPECT_EQ(self.transport->Enqueue({AllReduce(data)}, self.stream), cause);
    self.transport = nullptr;
  });
  EXPECT_EQ(FakeNccl::LivingCommunicators(), living);
}

// A thread that NCCL does not let go is left behind with its communicator, and with what it uses.
TEST(NcclTransportFailuresTest, ACallThatNeverReturnsIsLeftBehind) {
  static std::atomic<bool> released = false;
  released = false;
  static const Library& stuck = *new Library([] {
    Library table = FakeNccl::Table();
    table.group_end = [] {
      while (!released.load()) std::this_thread::yield();
      return FakeNccl::Table().group_end();
    };
    return table;
  }());
  const int living = FakeNccl::LivingCommunicators();
  const UniqueId id = NewUniqueId(stuck).value();
  auto alone = Connect({.nccl = &stuck, .cuda = &FakeCuda::Table(), .id = id}, Later());
  ASSERT_TRUE(alone.ok()) << alone.status();
  CUstream_st* stream = nullptr;
  ASSERT_EQ(FakeCuda::Table().create_stream(&stream), kCudaSuccess);
  std::vector<float> data(1, 1);
  EXPECT_EQ((*alone)->Enqueue({AllReduce(data)}, stream), absl::OkStatus());
  EXPECT_EQ((*alone)->Ready().value(), false);
  ExpectError((*alone)->Abort(absl::AbortedError("enough"), Soon()), absl::StatusCode::kDeadlineExceeded,
              "a thread is left behind in it");
  alone->reset();
  EXPECT_EQ(FakeNccl::LivingCommunicators(), living + 1);
  released = true;
  while (FakeNccl::LivingCommunicators() != living) std::this_thread::yield();
  EXPECT_EQ(FakeCuda::Table().synchronize_stream(stream), kCudaSuccess);
  EXPECT_EQ(FakeCuda::Table().destroy_stream(stream), kCudaSuccess);
}

TEST(NcclTransportFailuresTest, AnAbortThatHangsReturnsAtItsDeadline) {
  const int living = FakeNccl::LivingCommunicators();
  NcclWorld(1).Run([](NcclRank& self) {
    {
      const FakeNccl::With settings({.aborts_hang = true});
      ExpectError(self.transport->Abort(absl::AbortedError("enough"), Soon()), absl::StatusCode::kDeadlineExceeded,
                  "rank 0: NCCL has not aborted its communicator within");
    }
    self.transport = nullptr;
  });
  while (FakeNccl::LivingCommunicators() != living) std::this_thread::yield();  // the thread left behind ends
}

// The group is closed, or the next one of this thread would never begin.
TEST(NcclTransportFailuresTest, ACallThatNcclRefusesEndsItsGroup) {
  Library refusing = FakeNccl::Table();
  refusing.send = [](const void* src, std::size_t count, DataType type, int, Comm comm, CUstream_st* stream) {
    return FakeNccl::Table().send(src, count, type, /*peer=*/7, comm, stream);
  };
  NcclWorld(1, refusing).Run([](NcclRank& self) {
    std::vector<float> data(1, 1);
    const absl::Status error = self.Perform({AllReduce(data), Send(data, 0), Recv(data, 0)});
    ExpectError(error, absl::StatusCode::kInvalidArgument, "rank 0: a group of calls, with send f32 count=1 to=0: ");
    EXPECT_EQ(self.transport->Ready().status(), error);
    Leave(self);
    const Library& nccl = FakeNccl::Table();
    const UniqueId id = NewUniqueId(nccl).value();
    auto alone = Connect({.nccl = &nccl, .cuda = &FakeCuda::Table(), .id = id}, Later());
    ASSERT_TRUE(alone.ok());
    float sum = 0;
    EXPECT_EQ(self.Perform(**alone, {{.count = 1, .src = data.data(), .dst = &sum}}), absl::OkStatus());
    EXPECT_EQ(sum, 1);
  });
}

TEST(NcclTransportFailuresTest, AStreamThatDoesNotExistIsAnError) {
  NcclWorld(1).Run([](NcclRank& self) {
    std::vector<float> data(1, 1);
    int nothing = 0;
    auto* const stream = reinterpret_cast<CUstream_st*>(&nothing);
    absl::Status error = self.transport->Enqueue({AllReduce(data)}, stream);
    if (error.ok()) error = self.AwaitReady(*self.transport);
    ExpectError(error, absl::StatusCode::kInternal, "rank 0: ");
    Leave(self);
  });
}

}  // namespace
}  // namespace tutti::nccl
