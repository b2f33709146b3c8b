// Timeouts, ranks that leave, aborts and destruction, as the others hear of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <latch>
#include <limits>
#include <memory>
#include <ostream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "tests/harness/world.h"

namespace tutti {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr CallOptions kInline = {.caller_drives = true};

absl::Status Sum(Communicator& comm) {
  float value = 1;
  return comm.AllReduce(&value, &value, 1, DType::kF32, ReduceOp::kSum, kInline).Wait();
}

struct Case {
  std::string name;
  WorldOptions options;
};

void PrintTo(const Case& c, std::ostream* os) { *os << c.name; }

class CommunicatorEndTest : public ::testing::TestWithParam<Case> {};

TEST_P(CommunicatorEndTest, AnEndlessTimeoutIsNoTimeout) {
  for (const absl::Duration timeout : {absl::InfiniteDuration(), absl::Seconds(1e10)}) {
    WorldOptions options = GetParam().options;
    options.communicator.timeout = timeout;
    RunWorld(2, options, [](Communicator& comm) {
      for (int call = 0; call < 3; ++call) {
        // The pause is long enough for the other rank's engine to go to sleep.
        if (comm.rank() == call % 2) std::this_thread::sleep_for(std::chrono::milliseconds(120));
        ASSERT_EQ(Sum(comm), absl::OkStatus());
      }
    });
  }
}

TEST_P(CommunicatorEndTest, ARankThatReturnsEarlyHasLeft) {
  WorldOptions options = GetParam().options;
  options.communicator.timeout = absl::Minutes(5);
  const absl::Time start = absl::Now();
  RunWorld(3, options, [](Communicator& comm) {
    for (int call = 0; call < 10; ++call) ASSERT_EQ(Sum(comm), absl::OkStatus());
    if (comm.rank() == 2) return;
    // "rank 2 has left" or, when a message to rank 2 ended first, that rank 2 has shut its transport down.
    EXPECT_THAT(Sum(comm).ToString(), AllOf(HasSubstr("UNAVAILABLE"), HasSubstr("rank 2 has ")))
        << "rank " << comm.rank();
  });
  EXPECT_LT(absl::Now() - start, absl::Minutes(2));
}

TEST_P(CommunicatorEndTest, ARankThatHasLeftAGroupEndsItsCalls) {
  WorldOptions options = GetParam().options;
  options.communicator.timeout = absl::Minutes(5);
  RunWorld(3, options, [](Communicator& world) {
    absl::StatusOr<std::unique_ptr<Communicator>> group = world.Split(0, world.rank());
    ASSERT_TRUE(group.ok()) << group.status();
    ASSERT_EQ(Sum(**group), absl::OkStatus());
    if (world.rank() == 1) {
      group->reset();
    } else {
      EXPECT_THAT(Sum(**group).ToString(), AllOf(HasSubstr("UNAVAILABLE"), HasSubstr("rank 1 has left")));
    }
    EXPECT_EQ(Sum(world), absl::OkStatus());
  });
}

TEST_P(CommunicatorEndTest, ARankThatHasLeftAGroupSendsNothing) {
  WorldOptions options = GetParam().options;
  options.communicator.timeout = absl::Minutes(5);
  RunWorld(2, options, [](Communicator& world) {
    absl::StatusOr<std::unique_ptr<Communicator>> group = world.Split(0, world.rank());
    ASSERT_TRUE(group.ok()) << group.status();
    std::vector<float> values(200'000, static_cast<float>(world.rank()));
    const auto count = static_cast<std::int64_t>(values.size());
    if (world.rank() == 1) {
      ASSERT_EQ((*group)->Send(values.data(), count, DType::kF32, 0, kInline).Wait(), absl::OkStatus());
      group->reset();
    } else {
      ASSERT_EQ((*group)->Recv(values.data(), count, DType::kF32, 1, kInline).Wait(), absl::OkStatus());
      EXPECT_EQ(values.back(), 1.0f);
      EXPECT_THAT((*group)->Recv(values.data(), count, DType::kF32, 1, kInline).Wait().ToString(),
                  AllOf(HasSubstr("UNAVAILABLE"), HasSubstr("rank 1 has left")));
    }
    EXPECT_EQ(Sum(world), absl::OkStatus());
  });
}

TEST_P(CommunicatorEndTest, AMessageOfARankThatHasLeftArrivesAndTheNextDoesNot) {
  WorldOptions options = GetParam().options;
  options.communicator.timeout = absl::Minutes(5);
  RunWorld(2, options, [](Communicator& comm) {
    std::vector<float> values(200'000, 3.0f);
    const auto count = static_cast<std::int64_t>(values.size());
    if (comm.rank() == 0) {
      ASSERT_EQ(comm.Send(values.data(), count, DType::kF32, 1, kInline).Wait(), absl::OkStatus());
      return;
    }
    std::fill(values.begin(), values.end(), 0.0f);
    ASSERT_EQ(comm.Recv(values.data(), count, DType::kF32, 0, kInline).Wait(), absl::OkStatus());
    EXPECT_EQ(values.back(), 3.0f);
    EXPECT_THAT(comm.Recv(values.data(), count, DType::kF32, 0, kInline).Wait().ToString(),
                AllOf(HasSubstr("UNAVAILABLE"), HasSubstr("rank 0 has")));
  });
}

TEST_P(CommunicatorEndTest, AbortWithAnOkStatusIsAnError) {
  RunWorld(2, GetParam().options, [](Communicator& comm) {
    if (comm.rank() == 0) comm.Abort(absl::OkStatus());
    EXPECT_THAT(Sum(comm).ToString(), AllOf(HasSubstr("INVALID_ARGUMENT"), HasSubstr("rank 0 called Abort")));
  });
}

// A watch interrupts one thread, once it is asked to: other tests of this program wait, too.
class InterruptsWaits {
 public:
  InterruptsWaits() {
    SetWaitWatch([] { return interrupted ? absl::CancelledError("Ctrl-C was pressed") : absl::OkStatus(); });
  }
  ~InterruptsWaits() { SetWaitWatch(nullptr); }

  static inline thread_local bool interrupted = false;
};

TEST_P(CommunicatorEndTest, AWatchEndsAWaitAndAbortsTheGroup) {
  const InterruptsWaits watch;
  RunWorld(2, GetParam().options, [](Communicator& comm) {
    if (comm.rank() == 1) {
      // The Recv of rank 0 waits for this rank, which ends it by no call of its own.
      float value = 0;
      EXPECT_THAT(comm.Recv(&value, 1, DType::kF32, 0).Wait().ToString(), HasSubstr("rank 0: Ctrl-C was pressed"));
      return;
    }
    std::vector<float> values(1000);
    Work recv = comm.Recv(values.data(), 1000, DType::kF32, 1);
    EXPECT_TRUE(absl::IsDeadlineExceeded(recv.Wait(absl::Now() + absl::Milliseconds(10))));  // the watch is not asked
    InterruptsWaits::interrupted = true;
    EXPECT_EQ(recv.Wait(), absl::CancelledError("rank 0: Ctrl-C was pressed"));
    EXPECT_TRUE(recv.done());
    EXPECT_EQ(comm.Barrier().Wait(), absl::CancelledError("rank 0: Ctrl-C was pressed"));
    InterruptsWaits::interrupted = false;
  });
}

// The call ends while the watch runs: the error of the watch is told all the same, also to the peer, whose next call
// would wait for this rank.
TEST_P(CommunicatorEndTest, TheErrorOfAWatchOutlastsTheCall) {
  static std::latch* sends;
  static Work* awaited;
  static thread_local bool is_asked = false;
  std::latch begun(1);
  sends = &begun;
  SetWaitWatch([] {
    if (!is_asked) return absl::OkStatus();
    is_asked = false;
    sends->count_down();
    while (!awaited->done()) absl::SleepFor(absl::Milliseconds(1));
    return absl::CancelledError("Ctrl-C was pressed");
  });
  RunWorld(2, GetParam().options, [&](Communicator& comm) {
    float value = 1;
    if (comm.rank() == 1) {
      begun.wait();
      (void)comm.Send(&value, 1, DType::kF32, 0).Wait();  // the abort may come before this wait ends
      EXPECT_THAT(Sum(comm).ToString(), HasSubstr("rank 0: Ctrl-C was pressed"));
    } else {
      Work recv = comm.Recv(&value, 1, DType::kF32, 1);
      awaited = &recv;
      is_asked = true;
      EXPECT_EQ(recv.Wait(), absl::CancelledError("rank 0: Ctrl-C was pressed"));
    }
  });
  SetWaitWatch(nullptr);
}

TEST_P(CommunicatorEndTest, AbsurdSizesAreRefused) {
  RunWorld(1, GetParam().options, [](Communicator& comm) {
    constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
    for (const std::int64_t bytes : {kMax, kMax - 1, kMax - 4095, kMax / 2, std::int64_t{1} << 48}) {
      EXPECT_EQ(comm.Allocate(bytes).status().code(), absl::StatusCode::kResourceExhausted) << bytes;
    }
    EXPECT_TRUE(comm.Allocate(4096).ok());
  });
}

TEST_P(CommunicatorEndTest, AWaitEndsWhenAnotherThreadDestroysTheCommunicator) {
  for (int round = 0; round < 20; ++round) {
    std::atomic<int> joined = 0;
    std::atomic<int> waiting = 0;
    std::atomic<bool> both_are_in = false;
    RunWorld(2, GetParam().options, [&](Communicator& world) {
      absl::StatusOr<std::unique_ptr<Communicator>> group = world.Split(0, world.rank());
      if (world.rank() == 1) both_are_in = true;
      ASSERT_TRUE(group.ok()) << group.status();
      ++joined;
      if (world.rank() == 1) {
        while (waiting == 0) std::this_thread::yield();
        return;
      }
      while (!both_are_in) std::this_thread::yield();  // a Split that still ends on rank 1 would hear of the end
      float value = 1;
      Work work = (*group)->AllReduce(&value, &value, 1, DType::kF32, ReduceOp::kSum, kInline);
      std::thread waiter([&] {
        ++waiting;
        EXPECT_FALSE(work.Wait().ok());
      });
      while (waiting == 0 || joined < 2) std::this_thread::yield();
      group->reset();
      waiter.join();
    });
  }
}

std::vector<Case> AllCases() {
  std::vector<Case> cases;
  for (const std::string& transport : WorldTransports()) {
    cases.push_back({transport + "_mapped", {.transport = transport}});
    cases.push_back({transport + "_messages",
                     {.transport = transport, .communicator = {.mapping = CommunicatorOptions::Mapping::kNever}}});
    cases.push_back({transport + "_nodes", {.transport = transport, .ranks_per_node = 1}});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(, CommunicatorEndTest, ::testing::ValuesIn(AllCases()),
                         [](const auto& test) { return test.param.name; });

// A plan whose communicator is gone would go on with memory that is gone.
TEST(CommunicatorEnd, ACommunicatorThatABoundPlanStillUsesCannotBeDestroyed) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto destroy_first = [](Communicator& world) {
    std::unique_ptr<Communicator> group = *world.Split(0, 0);
    float value = 1;
    const absl::StatusOr<BoundPlan> sum = group->Bind(CollectiveSpec{.count = 1, .in_place = true}, {.out = &value});
    ASSERT_TRUE(sum.ok()) << sum.status();
    group.reset();
  };
  EXPECT_DEATH(RunWorld(1, {}, destroy_first),
               "rank 0 destroys a communicator that is still in use: destroy the 1 plan");
}

}  // namespace
}  // namespace tutti
