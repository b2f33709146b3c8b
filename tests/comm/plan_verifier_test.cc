#include "comm/plan_verifier.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <latch>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/harness/fake_device.h"
#include "tests/harness/world.h"
#include "tutti/algorithm.h"
#include "tutti/extension.h"
#include "tutti/schedule.h"
#include "tutti/version.h"

namespace tutti {
namespace {

using testing::HasSubstr;

// An all_reduce whose ranks send each other everything, and which forgets to divide an average.
void ForgetTheAverage(PlanBuilder& b) {
  std::vector<Ref> parts;
  for (Rank peer = 0; peer < b.size(); ++peer) {
    parts.push_back(peer == b.rank() ? b.in() : b.Scratch(b.spec().dtype, b.spec().count));
  }
  for (Rank peer = 0; peer < b.size(); ++peer) {
    if (peer == b.rank()) continue;
    b.Send(peer, b.in());
    b.Recv(peer, parts[peer]);
  }
  const Ref out[] = {b.out()};
  b.Reduce(out, parts, ReduceOp::kSum);
}

constexpr Schedule kNoAverage = {
    .collective = Collective::kAllReduce,
    .name = "no_average",
    .summary = "a mistake",
    .cost = "",
    .supports = SupportsAll,
    .build = ForgetTheAverage,
};

// An all_to_all_v in which every rank keeps the block that it should send to rank 0.
void KeepABlock(PlanBuilder& b) {
  std::int64_t sent = 0;
  std::int64_t received = 0;
  for (Rank peer = 0; peer < b.size(); ++peer) {
    const Ref src = b.in().Elements(sent, b.spec().send_counts[peer]);
    const Ref dst = b.out().Elements(received, b.spec().recv_counts[peer]);
    sent += src.count();
    received += dst.count();
    if (peer == b.rank()) {
      b.Copy(dst, src);
    } else if (peer != 0 && b.rank() != 0) {
      b.Send(peer, src);
      b.Recv(peer, dst);
    }
  }
}

constexpr Schedule kKeepsABlock = {
    .collective = Collective::kAllToAllV,
    .name = "keeps_a_block",
    .summary = "a mistake",
    .cost = "",
    .supports = SupportsAll,
    .build = KeepABlock,
};

TEST(PlanVerifierTest, AScheduleThatForgetsTheAverageDoesNotRun) {
  RunWorld(3, [](Communicator& comm) {
    float x = 1;
    const CallOptions with = {.schedule = &kNoAverage};
    const absl::Status status = comm.AllReduce(&x, &x, 1, DType::kF32, ReduceOp::kAvg, with).Wait();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(
        std::string(status.message()),
        testing::StartsWith(
            "plan all_reduce:no_average of all_reduce f32 avg count=1 in_place on 3 ranks is wrong and does not run: "
            "rank 0 ends with out[0,4) f32: element 0 of avg of element 0 of all 3 ranks is expected, found "
            "sum(in@0[0], in@1[0], in@2[0]), written by rank 0 step 4 (reduce out[0,4) f32"));
    EXPECT_EQ(x, 1);
    EXPECT_EQ(comm.Bind(CollectiveSpec{.op = ReduceOp::kAvg, .count = 1, .in_place = true}, {.out = &x}, with)
                  .status()
                  .code(),
              absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(comm.AllReduce(&x, &x, 1, DType::kF32, ReduceOp::kSum, with).Wait(), absl::OkStatus())
        << "sums it does right, and the communicator goes on";
    EXPECT_EQ(x, 3);
  });
}

// Ranks exchange messages: a rank does not know which of the others call in place.
TEST(PlanVerifierTest, AScheduleThatIsWrongInPlaceAloneDoesNotRunOnAnyRank) {
  static constexpr Schedule kWrongInPlace = {
      .collective = Collective::kAllReduce,
      .name = "wrong_in_place",
      .summary = "a mistake",
      .cost = "",
      .supports = SupportsAll,
      .build =
          [](PlanBuilder& b) {
            ForgetTheAverage(b);
            if (!b.spec().in_place) b.Scale(b.out(), b.out(), b.size());
          },
  };
  RunWorld(2, [](Communicator& comm) {
    const float in = 1;
    float out = 1;
    const CallOptions with = {.schedule = &kWrongInPlace};
    const absl::Status status =
        comm.AllReduce(comm.rank() == 0 ? &out : &in, &out, 1, DType::kF32, ReduceOp::kAvg, with).Wait();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("avg count=1 in_place on 2 ranks is wrong"));
    EXPECT_EQ(out, 1);
  });
}

TEST(PlanVerifierTest, AScheduleKeepsNoStateAndPromisesNoMix) {
  static constexpr Schedule kMixes = {
      .collective = Collective::kAllReduce,
      .name = "mixes",
      .summary = "a mistake",
      .cost = "",
      .supports = SupportsAll,
      .build =
          [](PlanBuilder& b) {
            std::vector<double> own(b.size());
            own[b.rank()] = 1;
            b.PromiseMixing(own);
            b.Copy(b.out(), b.in());
          },
  };
  static constexpr Schedule kRemembers = {
      .collective = Collective::kAllReduce,
      .name = "remembers",
      .summary = "a mistake",
      .cost = "",
      .supports = SupportsAll,
      .build = [](PlanBuilder& b) { b.Copy(b.out(), b.Residual("lost", DType::kF32, b.in().count())); },
  };
  RunWorld(2, [](Communicator& comm) {
    const float in = 1;
    float out = 0;
    const auto error_of = [&](const Schedule& schedule) {
      const absl::Status status =
          comm.AllReduce(&in, &out, 1, DType::kF32, ReduceOp::kSum, {.schedule = &schedule}).Wait();
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
      return std::string(status.message());
    };
    EXPECT_THAT(error_of(kMixes), HasSubstr("schedule all_reduce:mixes promises a mix"));
    EXPECT_THAT(error_of(kRemembers), HasSubstr("schedule all_reduce:remembers keeps state"));
  });
}

// Nothing is faster than a schedule that does nothing, so that the selector chooses it.
constinit const Schedule kDoesNothing = {.collective = Collective::kAllReduce,
                                         .name = "does_nothing",
                                         .summary = "a mistake",
                                         .cost = "",
                                         .supports = SupportsAll,
                                         .build = [](PlanBuilder&) {}};
constinit const Schedule* const kSchedules[] = {&kDoesNothing};

// Binds a bucket of the strategy on two ranks, in a process that has the schedule; exits with the error of rank 0.
[[noreturn]] void BindWithExtension(const std::string& strategy) {
  std::string said =
      RegisterExtension({.name = "tests", .tutti_version = Version(), .schedules = kSchedules}).ToString();
  RunWorld(2, [&](Communicator& comm) {
    std::vector<float> bucket(1000);
    const absl::Status bound =
        comm.Bind(*ParseStrategy(strategy), DType::kF32, 1000, 0, {.out = bucket.data()}).status();
    if (comm.rank() == 0) said += absl::StrCat(", ", bound.ToString());
  });
  std::fprintf(stderr, "%s\n", said.c_str());
  std::exit(3);
}

TEST(PlanVerifierDeathTest, AWrongPlanOfAStrategyNamesTheSchedule) {
  const testing::ExitedWithCode ends(3);
  EXPECT_EXIT(BindWithExtension("gradient_allreduce"), ends,
              "OK, FAILED_PRECONDITION: strategy gradient_allreduce:.*schedule=auto.*: plan gradient_allreduce of "
              "all_reduce f32 avg .* is wrong and does not run: .* \\(in parts written by schedule "
              "all_reduce:does_nothing\\)\n");
  EXPECT_EXIT(BindWithExtension("gradient_allreduce:schedule=does_nothing"), ends,
              "FAILED_PRECONDITION: strategy gradient_allreduce:.*schedule=does_nothing.*: plan ");
  EXPECT_EXIT(BindWithExtension("gradient_allreduce:schedule=ring"), ends, "OK, OK\n");
}

// Verifies wrong plans of 2 ranks in a process with this TUTTI_VERIFY: a few steps, and more than
// PlanVerifier::kMaxSteps.
[[noreturn]] void VerifyInMode(const char* mode) {
  ::setenv("TUTTI_VERIFY", mode, /*overwrite=*/1);
  PlanVerifier::KindsMade made;
  std::string said;
  for (const std::int64_t count : {1, 100'000}) {
    const auto plan_of = [count](Rank rank) {
      return BuildPlan(kNoAverage, {.op = ReduceOp::kAvg, .count = count}, rank, 2, {.segment_bytes = 8});
    };
    const PlanVerifier::Kind kind = {.maker = "no_average", .call = absl::StrCat(count)};
    const absl::Status status = PlanVerifier::OfProcess().Check(kind, *plan_of(0), plan_of, made);
    absl::StrAppend(&said, count, status.ok() ? " runs, " : " is refused, ");
  }
  std::fprintf(stderr, "%s\n", said.c_str());
  std::exit(3);
}

TEST(PlanVerifierDeathTest, TheVariableSaysWhatIsVerified) {
  const testing::ExitedWithCode ends(3);
  EXPECT_EXIT(VerifyInMode("auto"), ends, "1 is refused, 100000 runs, ");
  EXPECT_EXIT(VerifyInMode("always"), ends, "1 is refused, 100000 is refused, ");
  EXPECT_EXIT(VerifyInMode("never"), ends, "1 runs, 100000 runs, ");
}

// Calls in place by a schedule that has no other plans.
[[noreturn]] void CallInPlaceInMode(const char* mode) {
  static constexpr Schedule kInPlaceAlone = {
      .collective = Collective::kAllReduce,
      .name = "in_place_alone",
      .summary = "a mistake",
      .cost = "",
      .supports = [](const CollectiveSpec& spec, int, const PlanOptions&) -> absl::Status {
        return spec.in_place ? absl::OkStatus() : absl::InternalError("no plan");
      },
      .build = ForgetTheAverage,
  };
  ::setenv("TUTTI_VERIFY", mode, /*overwrite=*/1);
  std::string said;
  RunWorld(2, [&](Communicator& comm) {
    float x = 1;
    const CallOptions with = {.schedule = &kInPlaceAlone};
    const absl::Status status = comm.AllReduce(&x, &x, 1, DType::kF32, ReduceOp::kSum, with).Wait();
    if (comm.rank() == 0) said = status.ToString();
  });
  std::fprintf(stderr, "%s\n", said.c_str());
  std::exit(3);
}

TEST(PlanVerifierDeathTest, WhereNothingIsVerifiedOnlyThePlansThatRunAreMade) {
  const testing::ExitedWithCode ends(3);
  EXPECT_EXIT(CallInPlaceInMode("auto"), ends, "INTERNAL: .*no plan");
  EXPECT_EXIT(CallInPlaceInMode("never"), ends, "OK");
}

TEST(PlanVerifierTest, AnAllToAllVIsJudgedByAnExample) {
  RunWorld(3, [](Communicator& comm) {
    const std::vector<std::int64_t> counts = {0, 0, 0};  // with these the schedule would do no harm
    const absl::Status status = comm.Call({.collective = Collective::kAllToAllV,
                                           .dtype = DType::kF32,
                                           .send_counts = counts,
                                           .recv_counts = counts},
                                          nullptr, nullptr, {.schedule = &kKeepsABlock})
                                    .Wait();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("plan all_to_all_v:keeps_a_block of all_to_all_v"));
  });
}

// Later calls of any type have what was verified for the type of the first call.
TEST(PlanVerifierTest, AnExampleHasBlocksOfSeveralSegmentsForEveryType) {
  static constexpr Schedule kWrongInSegments = {
      .collective = Collective::kAllToAllV,
      .name = "wrong_in_segments",
      .summary = "a mistake",
      .cost = "",
      .supports = SupportsAll,
      .build =
          [](PlanBuilder& b) {
            const std::vector<std::int64_t>& sent = b.spec().send_counts;
            const std::int64_t longest = *std::max_element(sent.begin(), sent.end()) * SizeOf(b.spec().dtype);
            if (longest > b.options().segment_bytes) return KeepABlock(b);
            BuildPart(**FindSchedule(Collective::kAllToAllV, "pairwise"), b);
          },
  };
  for (const DType dtype : {DType::kU8, DType::kF64}) {
    RunWorld(4, [&](Communicator& comm) {
      const std::vector<std::int64_t> counts = {0, 0, 0, 0};
      const CollectiveSpec spec = {
          .collective = Collective::kAllToAllV, .dtype = dtype, .send_counts = counts, .recv_counts = counts};
      const absl::Status status = comm.Call(spec, nullptr, nullptr, {.schedule = &kWrongInSegments}).Wait();
      EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << Name(dtype) << ": " << status;
    });
  }
}

// Host memory is mapped and that of GPUs is not: each has an example of its own.
TEST(PlanVerifierTest, AnExampleIsOfThePlansThatRun) {
  static constexpr Schedule kWrongUnmapped = {
      .collective = Collective::kAllToAllV,
      .name = "wrong_unmapped",
      .summary = "a mistake",
      .cost = "",
      .supports = SupportsAll,
      .build =
          [](PlanBuilder& b) {
            if (!b.options().peers_mapped) return KeepABlock(b);
            BuildPart(**FindSchedule(Collective::kAllToAllV, "pairwise"), b);
          },
  };
  static constexpr Schedule kOfIntegers = {
      .collective = Collective::kAllToAllV,
      .name = "of_integers",
      .summary = "a mistake",
      .cost = "",
      .supports = [](const CollectiveSpec& spec, int, const PlanOptions&) -> absl::Status {
        return spec.dtype == DType::kI32 ? absl::OkStatus() : absl::UnimplementedError("i32 alone");
      },
      .build = KeepABlock,
  };
  RunWorld(2, OnDevices(), [](Communicator& comm) {
    const std::vector<std::int64_t> counts = {1, 1};
    const auto status_of = [&](const Schedule& schedule, DType dtype, const void* in, void* out) {
      const CollectiveSpec spec = {
          .collective = Collective::kAllToAllV, .dtype = dtype, .send_counts = counts, .recv_counts = counts};
      return comm.Call(spec, in, out, {.schedule = &schedule}).Wait().code();
    };
    const float in[] = {1, 2};
    float out[2];
    EXPECT_EQ(status_of(kWrongUnmapped, DType::kF32, in, out), absl::StatusCode::kOk);
    FakeMemory memory(comm.rank(), 4 * sizeof(float));
    EXPECT_EQ(status_of(kWrongUnmapped, DType::kF32, memory.floats(), memory.floats() + 2),
              absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(status_of(kOfIntegers, DType::kI32, in, out), absl::StatusCode::kFailedPrecondition);
  });
}

TEST(PlanVerifierTest, APlanOfTheUsersIsVerifiedForAllRanks) {
  RunWorld(2, [](Communicator& comm) {
    const CollectiveSpec spec = {.op = ReduceOp::kAvg, .count = 4, .in_place = true};
    std::vector<float> x(4, 1.0f);
    const auto bind = [&](const Schedule& wrong, Rank wrong_rank) {
      return comm
          .Bind(
              [&](Rank rank) {
                return BuildPlan(rank == wrong_rank ? wrong : **FindSchedule(Collective::kAllReduce, "ring"), spec,
                                 rank, 2, comm.plan_options());
              },
              {.out = x.data()})
          .status();
    };
    for (const Rank wrong_rank : {0, 1}) {
      EXPECT_EQ(bind(kNoAverage, wrong_rank).code(), absl::StatusCode::kFailedPrecondition) << "on both ranks";
    }
    EXPECT_EQ(bind(kNoAverage, -1), absl::OkStatus());
  });
}

// Nothing looks a rank of a user's plan up before the plan is verified.
TEST(PlanVerifierTest, APlanThatNamesRanksThatDoNotExistIsRefused) {
  RunWorld(2, [](Communicator& comm) {
    const CollectiveSpec spec = {.count = 4};
    std::vector<float> in(4), out(4);
    const auto bind = [&](const std::function<void(Plan&)>& change) {
      return comm
          .Bind(
              [&](Rank rank) {
                absl::StatusOr<Plan> plan =
                    BuildPlan(**FindSchedule(Collective::kAllReduce, "direct"), spec, rank, 2, comm.plan_options());
                if (plan.ok()) change(*plan);
                return plan;
              },
              {.in = in.data(), .out = out.data()})
          .status();
    };
    EXPECT_EQ(bind([](Plan&) {}), absl::OkStatus());
    for (const Rank nobody : {2, 1 << 28, -3, -(1 << 28)}) {
      const auto owns_memory = [&](Plan& plan) {
        const auto of_peer = [](const Ref& ref) { return ref.owner != kSelf; };
        std::find_if(plan.refs.begin(), plan.refs.end(), of_peer)->owner = nobody;
      };
      const auto signals = [&](Plan& plan) {
        const auto waits = [](const Step& step) { return step.kind == StepKind::kWait; };
        std::find_if(plan.steps.begin(), plan.steps.end(), waits)->peer = nobody;
      };
      EXPECT_THAT(std::string(bind(owns_memory).message()), HasSubstr(absl::StrCat("owner ", nobody, " must be")));
      EXPECT_THAT(std::string(bind(signals).message()), HasSubstr(absl::StrCat("peer ", nobody, " must be in 0…1")));
    }
  });
}

// Plans of a broken schedule for 2 ranks, and how often the verifier has asked for the plan of rank 1.
class LimitsTest : public testing::Test {
 protected:
  // Verifies a call; calls with equal `number` are of one kind.
  absl::Status Check(PlanVerifier& verifier, std::size_t number, const std::string& maker = "all_reduce:no_average",
                     std::int64_t count = 1, bool in_place = false) {
    const auto plan_of = [&](Rank rank) {
      if (rank == 1) ++asked_;
      return BuildPlan(kNoAverage, {.op = op_, .count = count}, rank, 2, {.segment_bytes = 8});
    };
    return verifier.Check({.maker = maker, .call = absl::StrCat(maker, number), .in_place = in_place}, *plan_of(0),
                          plan_of, made_);
  }

  ReduceOp op_ = ReduceOp::kSum;
  std::size_t asked_ = 0;
  PlanVerifier::KindsMade made_;
};

TEST_F(LimitsTest, EachSetOfPlansIsVerifiedOnce) {
  PlanVerifier verifier(PlanVerifier::Mode::kAuto);
  for (int time = 0; time < 3; ++time) EXPECT_EQ(Check(verifier, 5), absl::OkStatus());
  EXPECT_EQ(asked_, 1);
  EXPECT_EQ(Check(verifier, 6), absl::OkStatus());
  EXPECT_EQ(asked_, 2);
  op_ = ReduceOp::kAvg;
  for (int time = 0; time < 3; ++time) {
    EXPECT_EQ(Check(verifier, 7).code(), absl::StatusCode::kFailedPrecondition) << "also when it is asked again";
  }
  EXPECT_EQ(asked_, 3);
}

TEST_F(LimitsTest, ManyStepsAreSaidOnceToBeUnverified) {
  op_ = ReduceOp::kAvg;
  constexpr std::int64_t kMany = 100'000;  // 50,000 segments, of which each rank sends, receives and adds every one
  PlanVerifier verifier(PlanVerifier::Mode::kAuto);
  testing::internal::CaptureStderr();
  for (const int number : {1, 2}) EXPECT_EQ(Check(verifier, number, "maker", kMany), absl::OkStatus());
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "tutti: plans of maker for all_reduce f32 avg count=100000 on 2 ranks run unverified: they "
            "have more than 200000 steps together. TUTTI_VERIFY=always verifies all.\n");
  EXPECT_EQ(asked_, 2) << "each time until the sum was known";
  PlanVerifier always(PlanVerifier::Mode::kAlways);
  EXPECT_EQ(Check(always, 1, "maker", kMany).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(LimitsTest, SoAreManyKindsOfCalls) {
  PlanVerifier verifier(PlanVerifier::Mode::kAuto);
  for (std::size_t number = 1; number <= PlanVerifier::kMaxKinds; ++number) {
    EXPECT_EQ(Check(verifier, number), absl::OkStatus());
  }
  EXPECT_EQ(asked_, PlanVerifier::kMaxKinds);
  op_ = ReduceOp::kAvg;
  testing::internal::CaptureStderr();
  EXPECT_EQ(Check(verifier, 5000), absl::OkStatus());
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("1000 kinds of calls of a communicator have been verified"));
  EXPECT_EQ(asked_, PlanVerifier::kMaxKinds);
  EXPECT_EQ(Check(verifier, 5000, "all_reduce:another").code(), absl::StatusCode::kFailedPrecondition)
      << "each schedule has a limit of its own";
}

// A model that binds its buckets anew binds calls of the same kinds again.
TEST_F(LimitsTest, CallsOfOneKindCountOnce) {
  PlanVerifier verifier(PlanVerifier::Mode::kAuto);
  for (std::size_t time = 0; time <= PlanVerifier::kMaxKinds; ++time) EXPECT_EQ(Check(verifier, 5), absl::OkStatus());
  op_ = ReduceOp::kAvg;
  EXPECT_EQ(Check(verifier, 6).code(), absl::StatusCode::kFailedPrecondition);
}

// Ranks whose calls are in place and ranks whose calls are not verify both forms of the last kind.
TEST_F(LimitsTest, BothFormsOfACallCountOnce) {
  PlanVerifier verifier(PlanVerifier::Mode::kAuto);
  for (std::size_t number = 1; number < PlanVerifier::kMaxKinds; ++number) {
    EXPECT_EQ(Check(verifier, number), absl::OkStatus());
  }
  op_ = ReduceOp::kAvg;
  for (const bool in_place : {true, false}) {
    EXPECT_EQ(Check(verifier, 5000, "all_reduce:no_average", 1, in_place).code(),
              absl::StatusCode::kFailedPrecondition);
  }
}

// A rank may already know a result that its peers still have to find. All must reach the limit of kinds at the same
// call.
TEST_F(LimitsTest, KindsCountForEachCommunicatorWhetherTheyAreKnownOrNot) {
  PlanVerifier verifier(PlanVerifier::Mode::kAuto);
  for (std::size_t number = 1; number <= PlanVerifier::kMaxKinds; ++number) {
    EXPECT_EQ(Check(verifier, number), absl::OkStatus());
  }
  made_.clear();  // as in a communicator that has made no calls yet
  for (std::size_t number = 1; number <= PlanVerifier::kMaxKinds; ++number) {
    EXPECT_EQ(Check(verifier, number), absl::OkStatus());
  }
  EXPECT_EQ(asked_, PlanVerifier::kMaxKinds);
  op_ = ReduceOp::kAvg;
  testing::internal::CaptureStderr();
  EXPECT_EQ(Check(verifier, 5000), absl::OkStatus());
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("run unverified"));
}

TEST_F(LimitsTest, APlanThatThrowsIsAskedForAgain) {
  PlanVerifier verifier(PlanVerifier::Mode::kAuto);
  const Plan own = *BuildPlan(kNoAverage, {.count = 1}, 0, 2, {});
  const auto throws = [](Rank) -> absl::StatusOr<Plan> { throw std::bad_alloc(); };
  for (int time = 0; time < 2; ++time) {
    EXPECT_THROW((void)verifier.Check({.maker = "m", .call = "c"}, own, throws, made_), std::bad_alloc);
  }
}

TEST_F(LimitsTest, NeverMeansNever) {
  op_ = ReduceOp::kAvg;
  PlanVerifier verifier(PlanVerifier::Mode::kNever);
  EXPECT_EQ(Check(verifier, 5), absl::OkStatus());
  EXPECT_EQ(asked_, 0);
}

// The thread that verifies does not exist in the child.
TEST_F(LimitsTest, AForkedChildDoesNotWaitForAThreadOfItsParent) {
  std::latch verifies(1), forked(1);
  std::thread other([&] {
    PlanVerifier::KindsMade made;
    const auto plan_of = [&](Rank rank) {
      if (rank == 0) {
        verifies.count_down();
        forked.wait();
      }
      return BuildPlan(kNoAverage, {.count = 1}, rank, 2, {});
    };
    const Plan own = *BuildPlan(kNoAverage, {.count = 1}, 1, 2, {});
    const PlanVerifier::Kind kind = {.maker = "all_reduce:no_average", .call = "all_reduce:no_average7"};
    EXPECT_EQ(PlanVerifier::OfProcess().Check(kind, own, plan_of, made), absl::OkStatus());
  });
  verifies.wait();
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    _exit(Check(PlanVerifier::OfProcess(), 7).ok() && asked_ == 1 ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  forked.count_down();
  other.join();
}

}  // namespace
}  // namespace tutti
