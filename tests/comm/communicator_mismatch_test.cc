// Ranks that make different calls get an error, on every rank, whatever the calls are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/harness/world.h"
#include "tutti/algorithm.h"

namespace tutti {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr CallOptions kInline = {.caller_drives = true};

struct Case {
  std::string transport;
  CommunicatorOptions::Mapping mapping;
};

void PrintTo(const Case& c, std::ostream* os) { *os << c.transport; }

class CommunicatorMismatchTest : public ::testing::TestWithParam<Case> {
 protected:
  // The timeout is minutes, because a mismatch must be found without a timeout.
  WorldOptions options() const {
    return {.transport = GetParam().transport,
            .communicator = {.timeout = absl::Minutes(5), .mapping = GetParam().mapping}};
  }

  // Every rank calls until it hears of an error, which must name both calls.
  void ExpectToldToAll(int size, const std::function<absl::Status(Communicator&)>& call,
                       const ::testing::Matcher<const std::string&>& words) {
    RunWorld(size, options(), [&](Communicator& comm) {
      absl::Status status;
      for (int calls = 0; status.ok() && calls < 100; ++calls) status = call(comm);
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << "rank " << comm.rank() << ": " << status;
      EXPECT_THAT(std::string(status.message()), words) << "rank " << comm.rank();
    });
  }
};

TEST_P(CommunicatorMismatchTest, OfWhichOneIsABarrier) {
  const std::string barrier = "called barrier", sum = "called all_reduce dtype=f32 op=sum in_place count=1";
  ExpectToldToAll(
      2,
      [flushed = std::vector<int>(2)](Communicator& comm) mutable {
        float value = 1;
        if (comm.rank() == 0 && flushed[0]++ == 0) return comm.Barrier(kInline).Wait();
        return comm.AllReduce(&value, &value, 1, DType::kF32, ReduceOp::kSum, kInline).Wait();
      },
      AnyOf(HasSubstr("rank 0 " + barrier + " where rank 1 " + sum + ";"),
            HasSubstr("rank 1 " + sum + " where rank 0 " + barrier + ";")));
}

TEST_P(CommunicatorMismatchTest, OfWhichOneIsABroadcast) {
  ExpectToldToAll(
      3,
      [flushed = std::vector<int>(3)](Communicator& comm) mutable {
        float value = 1;
        if (comm.rank() == 0 && flushed[0]++ == 0) {
          return comm.Broadcast(&value, &value, 1, DType::kF32, /*root=*/0, kInline).Wait();
        }
        return comm.AllReduce(&value, &value, 1, DType::kF32, ReduceOp::kSum, kInline).Wait();
      },
      AllOf(HasSubstr("broadcast"), HasSubstr("all_reduce"), HasSubstr("the same calls in the same order")));
}

TEST_P(CommunicatorMismatchTest, OfTwoOwners) {
  ExpectToldToAll(
      2,
      [](Communicator& comm) {
        std::vector<float> gradients(1000, 1);
        CallOptions options = kInline;
        options.owner = static_cast<std::uint32_t>(1 + comm.rank());
        options.round = 7;
        return comm.AllReduce(gradients.data(), gradients.data(), 1000, DType::kF32, ReduceOp::kSum, options).Wait();
      },
      AllOf(HasSubstr("owner 1 in round 7"), HasSubstr("owner 2 in round 7")));
}

TEST_P(CommunicatorMismatchTest, OfARankThatSkippedARound) {
  ExpectToldToAll(
      2,
      [rounds = std::vector<int>(2)](Communicator& comm) mutable {
        float gradient = 1;
        CallOptions options = kInline;
        options.owner = 1;
        int& round = rounds[static_cast<std::size_t>(comm.rank())];
        if (comm.rank() == 1 && ++round == 5) ++round;
        if (comm.rank() == 0) ++round;
        options.round = static_cast<std::uint64_t>(round);
        return comm.AllReduce(&gradient, &gradient, 1, DType::kF32, ReduceOp::kSum, options).Wait();
      },
      AllOf(HasSubstr("in round 5"), HasSubstr("in round 6")));
}

TEST_P(CommunicatorMismatchTest, SomeRanksInPlaceAndOthersNotIsNone) {
  RunWorld(3, options(), [&](Communicator& comm) {
    std::vector<float> in(100, 1.0f);
    std::vector<float> out(100, 0.0f);
    const bool in_place = comm.rank() == 1;
    const Schedule* const ring = *FindSchedule(Collective::kAllReduce, "ring");
    ASSERT_EQ(comm.AllReduce(in.data(), in_place ? in.data() : out.data(), 100, DType::kF32, ReduceOp::kSum,
                             {.schedule = ring, .caller_drives = true})
                  .Wait(),
              absl::OkStatus());
    EXPECT_EQ(in_place ? in : out, std::vector<float>(100, 3.0f));
  });
}

std::vector<Case> AllCases() {
  std::vector<Case> cases;
  for (const std::string& transport : WorldTransports()) {
    cases.push_back({transport, CommunicatorOptions::Mapping::kAuto});
    cases.push_back({transport, CommunicatorOptions::Mapping::kNever});
  }
  return cases;
}

TEST_P(CommunicatorMismatchTest, OfBoundPlansWhoseStrategiesDifferInAnOption) {
  const auto pairs = {std::pair{"gradient_allreduce:codec=bf16", "gradient_allreduce:codec=fp16"},
                      {"gradient_allreduce", "gradient_allreduce:codec=bf16"},
                      {"gradient_allreduce:schedule=ring", "gradient_allreduce:schedule=two_shot"}};
  for (const auto& [even, odd] : pairs) {
    ExpectToldToAll(
        2,
        [even = even, odd = odd](Communicator& comm) {
          std::vector<float> gradients(4096, 1);
          const Strategy strategy = *ParseStrategy(comm.rank() % 2 == 0 ? even : odd);
          absl::StatusOr<BoundPlan> plan = comm.Bind(strategy, DType::kF32, 4096, 0, {.out = gradients.data()});
          return plan.ok() ? plan->Start(kInline).Wait() : plan.status();
        },
        HasSubstr("with another schedule, algorithm, option or round of it"));
  }
}

// Only mapped memory is tested: over messages, unequal counts show in the length of a message that arrives.
TEST_P(CommunicatorMismatchTest, OfTheCountsOfABlockInMappedMemory) {
  if (GetParam().mapping == CommunicatorOptions::Mapping::kNever) GTEST_SKIP() << "nothing is mapped";
  struct Counts {
    std::int64_t sent, received;
  };
  // The pairs: both counts fit into one stage; one count is 0; one count needs several stages.
  for (const auto [sent, received] : {Counts{5, 7}, {7, 5}, {5, 0}, {0, 5}, {5, 600'000}, {600'000, 5}}) {
    ExpectToldToAll(
        3,
        [sent = sent, received = received](Communicator& comm) {
          std::vector<std::int64_t> send_counts(3, 3), recv_counts(3, 3);
          if (comm.rank() == 0) send_counts[1] = sent;
          if (comm.rank() == 1) recv_counts[0] = received;
          const std::vector<float> in(600'010);
          std::vector<float> out(600'010);
          return comm.AllToAllV(in.data(), send_counts, out.data(), recv_counts, DType::kF32, kInline).Wait();
        },
        AllOf(HasSubstr(absl::StrCat("send_counts[1] of rank 0 is ", sent)),
              HasSubstr(absl::StrCat("recv_counts[0] of rank 1 is ", received)), HasSubstr("must be equal")));
  }
}

INSTANTIATE_TEST_SUITE_P(, CommunicatorMismatchTest, ::testing::ValuesIn(AllCases()), [](const auto& test) {
  return test.param.transport + (test.param.mapping == CommunicatorOptions::Mapping::kAuto ? "_mapped" : "_messages");
});

}  // namespace
}  // namespace tutti
