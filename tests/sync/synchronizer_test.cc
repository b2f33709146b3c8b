// Synchronizers of a world of threads: the gradients after an exchange, and the errors of each rank.
#include "tutti/synchronizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/harness/rank_barrier.h"
#include "tests/harness/training.h"
#include "tests/harness/world.h"

namespace tutti {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A strategy that sums: sums of small integers are exact in every order.
constexpr char kSum[] = "gradient_allreduce:average=false";

std::vector<Parameter> SmallModel() {
  return {{"conv.weight", DType::kF32, 30, "5x6"}, {"conv.bias", DType::kF32, 5, "5"},
          {"empty", DType::kF32, 0, "0"},          {"scale", DType::kF64, 7, "7"},
          {"fc.weight", DType::kF32, 101, "101"},  {"fc.bias", DType::kF32, 1, "1"}};
}

SynchronizerOptions SmallBuckets(std::string strategy = kSum) {
  return {.strategy = std::move(strategy), .bucket_bytes = 200, .first_bucket_bytes = 64};
}

std::unique_ptr<Synchronizer> MakeSynchronizer(Communicator& communicator, const SynchronizerOptions& options,
                                               const std::vector<Parameter>& parameters = SmallModel()) {
  absl::StatusOr<std::unique_ptr<Synchronizer>> synchronizer = Synchronizer::Create(communicator, parameters, options);
  EXPECT_TRUE(synchronizer.ok()) << synchronizer.status();
  return synchronizer.ok() ? *std::move(synchronizer) : nullptr;
}

double Gradient(Rank rank, int step, int parameter, std::int64_t k) {
  return (rank + 1) * (parameter + 1) + step + static_cast<double>(k % 5);
}

// Calls f(element, k) for every element of a gradient, as double&-like values of its own dtype.
template <typename F>
void ForEachElement(const Synchronizer& synchronizer, int parameter, F f) {
  const Parameter p = SmallModel()[parameter];
  const std::shared_ptr<void> view = synchronizer.GradientView(parameter);
  for (std::int64_t k = 0; k < p.count; ++k) {
    if (p.dtype == DType::kF32) {
      f(static_cast<float*>(view.get())[k], k);
    } else {
      f(static_cast<double*>(view.get())[k], k);
    }
  }
}

void AddGradient(const Synchronizer& synchronizer, Rank rank, int step, int parameter) {
  ForEachElement(synchronizer, parameter, [&](auto& element, std::int64_t k) {
    element += static_cast<std::remove_reference_t<decltype(element)>>(Gradient(rank, step, parameter, k));
  });
}

void ExpectSums(const Synchronizer& synchronizer, int size, int step) {
  for (int i = 0; i < static_cast<int>(SmallModel().size()); ++i) {
    ForEachElement(synchronizer, i, [&](auto& element, std::int64_t k) {
      double sum = 0;
      for (Rank rank = 0; rank < size; ++rank) sum += Gradient(rank, step, i, k);
      ASSERT_EQ(element, sum) << "parameter " << i << " element " << k << " step " << step;
    });
  }
}

class SynchronizerInWorldOf : public ::testing::TestWithParam<int> {};

TEST_P(SynchronizerInWorldOf, SumsGradientsInWhateverOrderTheyCome) {
  RunWorld(GetParam(), [](Communicator& world) {
    std::unique_ptr<Synchronizer> synchronizer = MakeSynchronizer(world, SmallBuckets());
    ASSERT_NE(synchronizer, nullptr);
    EXPECT_GE(synchronizer->bucket_count(), 3);
    std::vector<int> order(SmallModel().size());
    std::iota(order.begin(), order.end(), 0);
    for (int step = 0; step < 5; ++step) {
      synchronizer->ZeroGradients();
      ASSERT_TRUE(synchronizer->BeginBackward().ok());
      // The order of gradients differs between ranks and steps.
      std::rotate(order.begin(), order.begin() + 1 + world.rank() % 3, order.end());
      for (int i : order) {
        AddGradient(*synchronizer, world.rank(), step, i);
        synchronizer->MarkReady(i);
      }
      ASSERT_EQ(synchronizer->FinishBackward(), absl::OkStatus());
      ExpectSums(*synchronizer, world.size(), step);
    }
    const SyncStatistics statistics = synchronizer->TakeStatistics();
    EXPECT_EQ(statistics.steps, 5);
    EXPECT_EQ(statistics.payload_bytes, 5 * ((30 + 5 + 101 + 1) * 4 + 7 * 8));
    EXPECT_EQ(statistics.wire_bytes > 0, world.size() > 1);
    EXPECT_GT(statistics.communication, absl::ZeroDuration());
    EXPECT_GT(statistics.exposed, absl::ZeroDuration());
    EXPECT_GE(statistics.hidden(), 0);
    EXPECT_LE(statistics.hidden(), 1);
    EXPECT_EQ(synchronizer->TakeStatistics().steps, 0);
  });
}

TEST_P(SynchronizerInWorldOf, TellsWhatTheEngineTookSinceTheLastTime) {
  RunWorld(GetParam(), [](Communicator& world) {
    std::unique_ptr<Synchronizer> synchronizer = MakeSynchronizer(world, SmallBuckets());
    ASSERT_NE(synchronizer, nullptr);
    absl::Duration engine_cpu;
    absl::Duration engine_waiting;
    const Counters before = world.counters();
    (void)synchronizer->TakeStatistics();
    for (int i = 0; i < 3; ++i) {
      const Work barrier = world.Barrier();
      while (!barrier.done()) std::this_thread::yield();  // the engine's thread carries it out
      const SyncStatistics statistics = synchronizer->TakeStatistics();
      EXPECT_GT(statistics.engine_cpu, absl::ZeroDuration());
      engine_cpu += statistics.engine_cpu;
      engine_waiting += statistics.engine_waiting;
    }
    const Counters after = world.counters();
    EXPECT_LE(engine_cpu, after.engine_cpu - before.engine_cpu);
    EXPECT_LE(engine_waiting, after.engine_waiting - before.engine_waiting);
    EXPECT_GE(after.engine_wall, before.engine_wall);
  });
}

TEST_P(SynchronizerInWorldOf, NoSyncAccumulatesLocally) {
  RunWorld(GetParam(), [](Communicator& world) {
    std::unique_ptr<Synchronizer> synchronizer = MakeSynchronizer(world, SmallBuckets());
    ASSERT_NE(synchronizer, nullptr);
    for (const bool synchronize : {false, false, true}) {
      synchronizer->set_synchronize(synchronize);
      ASSERT_TRUE(synchronizer->BeginBackward().ok());
      for (int i = 5; i >= 0; --i) {
        AddGradient(*synchronizer, world.rank(), 0, i);
        synchronizer->MarkReady(i);
      }
      ASSERT_EQ(synchronizer->FinishBackward(), absl::OkStatus());
    }
    ForEachElement(*synchronizer, 0, [&](auto& element, std::int64_t k) {
      double sum = 0;
      for (Rank rank = 0; rank < world.size(); ++rank) sum += 3 * Gradient(rank, 0, 0, k);
      ASSERT_EQ(element, sum);
    });
    EXPECT_EQ(synchronizer->TakeStatistics().steps, 1);
  });
}

INSTANTIATE_TEST_SUITE_P(All, SynchronizerInWorldOf, ::testing::Values(1, 2, 3, 4));

TEST(Synchronizer, GradientsMayComeFromSeveralThreads) {
  RunWorld(2, [](Communicator& world) {
    std::unique_ptr<Synchronizer> synchronizer = MakeSynchronizer(world, SmallBuckets());
    ASSERT_NE(synchronizer, nullptr);
    for (int step = 0; step < 10; ++step) {
      synchronizer->ZeroGradients();
      ASSERT_TRUE(synchronizer->BeginBackward().ok());
      auto mark = [&](int first) {
        for (int i = first; i < 6; i += 2) {
          AddGradient(*synchronizer, world.rank(), step, i);
          synchronizer->MarkReady(i);
        }
      };
      std::thread other(mark, 1);
      mark(0);
      other.join();
      ASSERT_EQ(synchronizer->FinishBackward(), absl::OkStatus());
      ExpectSums(*synchronizer, world.size(), step);
    }
  });
}

TEST(Synchronizer, UnusedParametersContributeZeroWhenAllowed) {
  RunWorld(3, [](Communicator& world) {
    SynchronizerOptions options = SmallBuckets();
    options.allow_unused = true;
    std::unique_ptr<Synchronizer> synchronizer = MakeSynchronizer(world, options);
    ASSERT_NE(synchronizer, nullptr);
    ASSERT_TRUE(synchronizer->BeginBackward().ok());
    // Only rank 1 uses fc.weight; nobody uses anything else.
    if (world.rank() == 1) {
      AddGradient(*synchronizer, 1, 0, 4);
      synchronizer->MarkReady(4);
    }
    EXPECT_EQ(synchronizer->MissingGradients().size(), world.rank() == 1 ? 4 : 5);
    ASSERT_EQ(synchronizer->FinishBackward(), absl::OkStatus());
    ForEachElement(*synchronizer, 4, [](auto& element, std::int64_t k) { ASSERT_EQ(element, Gradient(1, 0, 4, k)); });
    ForEachElement(*synchronizer, 0, [](auto& element, std::int64_t) { ASSERT_EQ(element, 0); });
  });
}

TEST(Synchronizer, AMissingGradientIsNamedOnItsRankAndToldToPeers) {
  RankBarrier made(3);  // a rank that hears of a peer's error while it makes its synchronizer gets none
  RunWorld(3, {.barrier = &made}, [&](Communicator& world) {
    std::unique_ptr<Synchronizer> synchronizer = MakeSynchronizer(world, SmallBuckets());
    ASSERT_NE(synchronizer, nullptr);
    made.Wait();
    ASSERT_TRUE(synchronizer->BeginBackward().ok());
    for (int i = 5; i >= 0; --i) {
      if (world.rank() != 2 || (i != 0 && i != 3)) synchronizer->MarkReady(i);
    }
    const absl::Status status = synchronizer->FinishBackward();
    EXPECT_EQ(status.code(), world.rank() == 2 ? absl::StatusCode::kInvalidArgument : absl::StatusCode::kAborted);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("rank 2: backward ended without a gradient of conv.weight, scale; set allow_unused"));
  });
}

// Whether it shares its bucket with others, or is alone in it as the only one of its type.
TEST(Synchronizer, AGradientWithoutElementsIsNeverMissing) {
  for (const DType dtype : {DType::kF32, DType::kF16}) {
    RunWorld(2, [&](Communicator& world) {
      std::unique_ptr<Synchronizer> synchronizer =
          MakeSynchronizer(world, SmallBuckets(), {{"w", DType::kF32, 10, "10"}, {"e", dtype, 0, "0"}});
      ASSERT_NE(synchronizer, nullptr);
      ASSERT_TRUE(synchronizer->BeginBackward().ok());
      EXPECT_EQ(synchronizer->MissingGradients(), std::vector<int>{0});
      synchronizer->MarkReady(0);
      EXPECT_EQ(synchronizer->FinishBackward(), absl::OkStatus());
    });
  }
}

TEST(Synchronizer, AGradientMarkedTwiceIsAnError) {
  RankBarrier made(2);  // a rank that hears of a peer's error while it makes its synchronizer gets none
  RunWorld(2, {.barrier = &made}, [&](Communicator& world) {
    std::unique_ptr<Synchronizer> synchronizer = MakeSynchronizer(world, SmallBuckets());
    ASSERT_NE(synchronizer, nullptr);
    made.Wait();
    ASSERT_TRUE(synchronizer->BeginBackward().ok());
    for (int i : {5, 4, 3, 2, 1}) synchronizer->MarkReady(i);
    synchronizer->MarkReady(world.rank() == 0 ? 0 : 1);
    const absl::Status status = synchronizer->FinishBackward();
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1: the gradient of conv.bias was marked ready twice"));
  });
}

// A late hook must send nothing: peers may be in another call.
TEST(Synchronizer, AMarkOutsideOfABackwardHasNoEffect) {
  RunWorld(2, [&](Communicator& world) {
    std::unique_ptr<Synchronizer> synchronizer = MakeSynchronizer(world, SmallBuckets());
    ASSERT_NE(synchronizer, nullptr);
    const auto mark_all = [&] {
      for (int i : {5, 4, 3, 2, 1, 0}) synchronizer->MarkReady(i);
    };
    if (world.rank() == 0) mark_all();
    ASSERT_TRUE(synchronizer->BeginBackward().ok());
    ASSERT_TRUE(synchronizer->CancelBackward().ok());
    if (world.rank() == 0) mark_all();
    ASSERT_TRUE(world.Barrier().Wait().ok());
    ASSERT_TRUE(synchronizer->BeginBackward().ok());
    mark_all();
    ASSERT_TRUE(synchronizer->FinishBackward().ok());
    if (world.rank() == 0) mark_all();
    ASSERT_TRUE(synchronizer->BeginBackward().ok());
    mark_all();
    EXPECT_EQ(synchronizer->FinishBackward(), absl::OkStatus());
  });
}

TEST(Synchronizer, HasNoStateToSaveAfterAnExchangeThatFailed) {
  RankBarrier made(2);
  RunWorld(2, {.barrier = &made}, [&](Communicator& world) {
    std::unique_ptr<Synchronizer> synchronizer = MakeSynchronizer(world, SmallBuckets());
    ASSERT_NE(synchronizer, nullptr);
    EXPECT_NE(synchronizer->SaveState(), "");
    made.Wait();
    ASSERT_TRUE(synchronizer->BeginBackward().ok());
    if (world.rank() == 1) return world.Abort(absl::AbortedError("enough"));
    for (int i : {5, 4, 3, 2, 1, 0}) synchronizer->MarkReady(i);
    EXPECT_FALSE(synchronizer->FinishBackward().ok());
    EXPECT_EQ(synchronizer->SaveState(), "");
  });
}

TEST(Synchronizer, AMarkOfNoParameterIsAnError) {
  for (const int number : {-1, 6}) {
    RunWorld(1, [&](Communicator& world) {
      std::unique_ptr<Synchronizer> synchronizer = MakeSynchronizer(world, SmallBuckets());
      ASSERT_NE(synchronizer, nullptr);
      EXPECT_EQ(synchronizer->GradientView(number), nullptr);
      EXPECT_FALSE(synchronizer->used(number));
      ASSERT_TRUE(synchronizer->BeginBackward().ok());
      for (int i : {5, 4, 3, 2, 1, 0, number}) synchronizer->MarkReady(i);
      const absl::Status status = synchronizer->FinishBackward();
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
      EXPECT_THAT(std::string(status.message()),
                  AllOf(HasSubstr(absl::StrCat("rank 0: gradient ", number, " was marked ready")),
                        HasSubstr("less than the number of parameters, 6")));
    });
  }
}

TEST(Synchronizer, PeersOfARankThatGivesUpAreTold) {
  RankBarrier made(2);  // a rank that hears of a peer's error while it makes its synchronizer gets none
  RunWorld(2, {.barrier = &made}, [&](Communicator& world) {
    std::unique_ptr<Synchronizer> synchronizer = MakeSynchronizer(world, SmallBuckets());
    ASSERT_NE(synchronizer, nullptr);
    made.Wait();
    ASSERT_TRUE(synchronizer->BeginBackward().ok());
    for (int i : {5, 4}) synchronizer->MarkReady(i);
    if (world.rank() == 0) {
      synchronizer.reset();
      return;
    }
    for (int i : {3, 2, 1, 0}) synchronizer->MarkReady(i);
    const absl::Status status = synchronizer->FinishBackward();
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 0 gave up"));
  });
}

// If the step were OK, the optimizer would use gradients of this rank alone.
TEST(Synchronizer, AfterAnErrorOfTheCommunicatorNoStepIsOk) {
  RunWorld(1, [](Communicator& world) {
    std::unique_ptr<Synchronizer> synchronizer =
        Synchronizer::Create(world, {{"p", DType::kF32, 10, "10"}}, {}).value();
    world.Abort(absl::AbortedError("enough"));
    EXPECT_EQ(synchronizer->BeforeStep().code(), absl::StatusCode::kAborted);
    EXPECT_EQ(synchronizer->Flush().code(), absl::StatusCode::kAborted);
  });
}

// Rank 1 has no room for its bucket: all ranks get the error, and could go on with a smaller model.
TEST(Synchronizer, WantOfMemoryOnOneRankIsTheErrorOfAll) {
  constexpr std::int64_t kRegion = 16 << 20;
  for (const char* strategy : {"gradient_allreduce", "decentralized", "async"}) {
    RunWorld(3, {.region_bytes = kRegion}, [&](Communicator& world) {
      constexpr std::int64_t kFloats = 1 << 20;
      std::vector<float> weights(kFloats);
      const std::vector<Parameter> model = {{"p", DType::kF32, kFloats, "1048576", weights.data()}};
      absl::StatusOr<Buffer> taken;
      if (world.rank() == 1) taken = world.Allocate(kRegion - (4 << 20));
      const absl::Status status = Synchronizer::Create(world, model, {.strategy = strategy}).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << strategy << ": " << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1"));
      EXPECT_EQ(world.status(), absl::OkStatus());
    });
  }
}

TEST(Synchronizer, StepsBeginAndEndInTurns) {
  RunWorld(1, [](Communicator& world) {
    std::unique_ptr<Synchronizer> synchronizer = MakeSynchronizer(world, SmallBuckets());
    ASSERT_NE(synchronizer, nullptr);
    EXPECT_EQ(synchronizer->FinishBackward().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_TRUE(synchronizer->BeginBackward().ok());
    EXPECT_EQ(synchronizer->BeginBackward().code(), absl::StatusCode::kFailedPrecondition);
  });
}

TEST(Synchronizer, NothingToSynchronizeIsFine) {
  RunWorld(2, [](Communicator& world) {
    std::unique_ptr<Synchronizer> synchronizer = MakeSynchronizer(world, {}, {});
    ASSERT_NE(synchronizer, nullptr);
    EXPECT_EQ(synchronizer->bucket_count(), 0);
    EXPECT_TRUE(synchronizer->BeginBackward().ok());
    EXPECT_EQ(synchronizer->FinishBackward(), absl::OkStatus());
  });
}

TEST(Synchronizer, GradientMemoryOutlivesIt) {
  RunWorld(2, [](Communicator& world) {
    std::unique_ptr<Synchronizer> synchronizer = MakeSynchronizer(world, SmallBuckets());
    ASSERT_NE(synchronizer, nullptr);
    const std::shared_ptr<void> view = synchronizer->GradientView(0);
    static_cast<float*>(view.get())[29] = 1;
    synchronizer.reset();
    EXPECT_EQ(static_cast<float*>(view.get())[29], 1);
  });
}

struct Difference {
  std::string name;
  std::function<void(SynchronizerOptions&, std::vector<Parameter>&)> of_rank_1;
  std::string told;
};

class SynchronizerAgreement : public ::testing::TestWithParam<Difference> {};

TEST_P(SynchronizerAgreement, NamesRankAndFieldOnEveryRank) {
  RunWorld(3, [](Communicator& world) {
    SynchronizerOptions options = SmallBuckets();
    std::vector<Parameter> parameters = SmallModel();
    if (world.rank() == 1) GetParam().of_rank_1(options, parameters);
    const absl::Status status = Synchronizer::Create(world, parameters, options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("rank 1"), HasSubstr(GetParam().told)));
  });
}

INSTANTIATE_TEST_SUITE_P(
    All, SynchronizerAgreement,
    ::testing::Values(
        Difference{"Strategy", [](auto& options, auto&) { options.strategy = "gradient_allreduce"; }, "average=true"},
        Difference{"WrongStrategy", [](auto& options, auto&) { options.strategy = "gradient_allredcue"; },
                   "strategy=gradient_allredcue"},
        Difference{"BucketBytes", [](auto& options, auto&) { options.bucket_bytes = 100; }, "bucket_bytes=100"},
        Difference{"AllowUnused", [](auto& options, auto&) { options.allow_unused = true; }, "allow_unused=true"},
        Difference{"Count", [](auto&, auto& parameters) { parameters.pop_back(); }, "parameters=5"},
        Difference{"Shape", [](auto&, auto& parameters) { parameters[0].shape = "6x5"; }, "conv.weight f32 6x5"},
        Difference{"DType", [](auto&, auto& parameters) { parameters[3].dtype = DType::kF16; }, "scale f16"}),
    [](const ::testing::TestParamInfo<Difference>& test) { return test.param.name; });

TEST(Synchronizer, RefusesWhatMakesNoSense) {
  RunWorld(2, [](Communicator& world) {
    SynchronizerOptions options = SmallBuckets("bytegrad:blok=2");
    absl::Status status = Synchronizer::Create(world, SmallModel(), options).status();
    EXPECT_THAT(std::string(status.message()), HasSubstr("unknown option 'blok'"));
    options = SmallBuckets();
    options.bucket_bytes = 0;
    status = Synchronizer::Create(world, SmallModel(), options).status();
    EXPECT_THAT(std::string(status.message()), HasSubstr("bucket_bytes 0"));
    status = Synchronizer::Create(world, {{"p", DType::kF32, -1, ""}}, SmallBuckets()).status();
    EXPECT_THAT(std::string(status.message()), HasSubstr("parameter p: count -1 is not in 0…35184372088832"));
    constexpr std::int64_t kMany = std::int64_t{1} << 44;
    status = Synchronizer::Create(world, {{"p", DType::kF32, kMany, ""}, {"q", DType::kF64, kMany, ""}}, {}).status();
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("parameter q: count 17592186044416 is not in 0…8796093022208"));
    status = Synchronizer::Create(world, {{"w", DType{99}, 1, "1"}}, {}).status();
    EXPECT_THAT(std::string(status.message()), HasSubstr("parameter w: dtype 99 must be in 0…16"));
    status = Synchronizer::Create(world, SmallModel(), SmallBuckets("bytegrad")).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
    EXPECT_THAT(std::string(status.message()), HasSubstr("gradients of f64"));
  });
}

TEST(Synchronizer, BroadcastsStateAndChecksIt) {
  RunWorld(3, [](Communicator& world) {
    std::unique_ptr<Synchronizer> synchronizer = MakeSynchronizer(world, {}, {});
    ASSERT_NE(synchronizer, nullptr);
    std::vector<float> weights(1000, static_cast<float>(world.rank() + 1));
    std::int64_t steps = world.rank();
    const StateMemory memory[] = {{weights.data(), 4000}, {nullptr, 0}, {&steps, 8}};
    EXPECT_EQ(synchronizer->BroadcastState(memory), absl::OkStatus());
    EXPECT_THAT(weights, ::testing::Each(1.0f));
    EXPECT_EQ(steps, 0);

    if (world.rank() == 2) steps = 7;
    const absl::Status differs = synchronizer->CheckState(memory);
    EXPECT_EQ(differs.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(differs.message()), AllOf(HasSubstr("rank 2"), HasSubstr("range 2")));

    const StateMemory shorter[] = {{weights.data(), world.rank() == 1 ? 8 : 16}};
    EXPECT_THAT(std::string(synchronizer->BroadcastState(shorter).message()),
                AllOf(HasSubstr("rank 1"), HasSubstr("bytes of range 0=8")));
  });
}

TEST(Synchronizer, RefusesStateWithoutMemoryOnEveryRank) {
  RunWorld(2, [](Communicator& world) {
    std::unique_ptr<Synchronizer> synchronizer = MakeSynchronizer(world, {}, {});
    ASSERT_NE(synchronizer, nullptr);
    std::vector<float> weights(1024);
    const StateMemory right = {weights.data(), 4096, "w"};
    const std::pair<StateMemory, const char*> mistakes[] = {
        {{nullptr, 4096, "w"}, "data of w is null, must be memory of 4096 bytes"},
        {{weights.data(), -1, "w"}, "bytes of w is -1, must be at least 0"}};
    for (const auto& [wrong, told] : mistakes) {
      for (const bool on_all_ranks : {true, false}) {
        const StateMemory memory[] = {on_all_ranks || world.rank() == 1 ? wrong : right};
        for (const absl::Status& refused : {synchronizer->BroadcastState(memory), synchronizer->CheckState(memory)}) {
          EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
          EXPECT_THAT(std::string(refused.message()), AllOf(HasSubstr(told), HasSubstr(on_all_ranks ? "" : "rank 1")));
        }
      }
    }
    const StateMemory shorter[] = {{weights.data(), world.rank() == 1 ? 400 : 4096, "w"}};
    for (const absl::Status& refused : {synchronizer->BroadcastState(shorter), synchronizer->CheckState(shorter)}) {
      EXPECT_EQ(refused, absl::InvalidArgumentError("rank 1 has bytes of w=400, rank 0 has 4096"));
    }
    EXPECT_EQ(world.status(), absl::OkStatus());
    EXPECT_EQ(synchronizer->BroadcastState({right}), absl::OkStatus());
  });
}

// Schedules that a user names for calls, and that cannot serve what a synchronizer calls: it needs several nodes, or is
// for GPUs.
TEST(Synchronizer, WorksWhateverSchedulesAreNamed) {
  WorldOptions on_host;
  on_host.communicator.schedules = "all_gather=hierarchical,all_reduce=hierarchical,broadcast=hierarchical";
  WorldOptions on_gpus = OnDevices();
  on_gpus.communicator.schedules = "all_gather=native,all_reduce=native,broadcast=native";
  for (const WorldOptions& options : {on_host, on_gpus}) {
    RunWorld(2, options, [](Communicator& world) {
      const std::unique_ptr<Synchronizer> synchronizer = MakeSynchronizer(world, SmallBuckets());
      ASSERT_NE(synchronizer, nullptr);
      const absl::StatusOr<bool> overflow = synchronizer->AgreeOnOverflow(world.rank() == 1);
      ASSERT_TRUE(overflow.ok()) << overflow.status();
      EXPECT_TRUE(*overflow);
      EXPECT_EQ(synchronizer->SetLossScale(2), absl::OkStatus());
      EXPECT_EQ(synchronizer->Agree("fields", {{"a", "1"}}), absl::OkStatus());
      float weight = static_cast<float>(world.rank());
      EXPECT_EQ(synchronizer->BroadcastState({{{&weight, 4, "w"}}}), absl::OkStatus());
      EXPECT_EQ(weight, 0);
    });
  }
  std::vector<std::string> states(3);
  const Training training = RandomTraining("low_precision_decentralized", 3, 1);
  RunReplicas(training, [&](Communicator& world, Replica& replica) {
    states[world.rank()] = replica.synchronizer().SaveState();
  });
  RunWorld(2, on_host, [&](Communicator& world) {
    const std::unique_ptr<Replica> replica =
        Replica::Make(world, training.model, training.strategy,
                      Floats(training.initial.size(), static_cast<float>(2 * world.rank())));
    ASSERT_NE(replica, nullptr);
    EXPECT_EQ(replica->synchronizer().LoadState(states), absl::OkStatus());
    EXPECT_EQ(replica->weights()[0], 1) << "the average, as of Flush";
    replica->weights()[0] = static_cast<float>(world.rank());
    EXPECT_EQ(replica->synchronizer().Restart(), absl::OkStatus());
    EXPECT_EQ(replica->synchronizer().Flush(), absl::OkStatus());
    EXPECT_EQ(replica->weights()[0], 0.5f);
  });
}

TEST(Synchronizer, ChecksEachOfTheRangesThatHaveOneName) {
  RunWorld(2, [](Communicator& world) {
    std::unique_ptr<Synchronizer> synchronizer = MakeSynchronizer(world, {}, {});
    ASSERT_NE(synchronizer, nullptr);
    float first = 1;
    float second = 2;
    const StateMemory memory[] = {{&first, 4, "w"}, {&second, 4, "w"}};
    EXPECT_EQ(synchronizer->CheckState(memory), absl::OkStatus());
    if (world.rank() == 1) second = 3;
    const absl::Status differs = synchronizer->CheckState(memory);
    EXPECT_EQ(differs.code(), absl::StatusCode::kDataLoss) << differs;
    EXPECT_THAT(std::string(differs.message()), HasSubstr("rank 1 has hash of w (2)="));
  });
}

TEST(Synchronizer, AgreesOnFieldsInOneOrderOnly) {
  RunWorld(2, [](Communicator& world) {
    std::unique_ptr<Synchronizer> synchronizer = MakeSynchronizer(world, {}, {});
    ASSERT_NE(synchronizer, nullptr);
    AgreementFields fields = {{"a", "1"}, {"b", "2"}};
    EXPECT_EQ(synchronizer->Agree("fields", fields), absl::OkStatus());
    if (world.rank() == 1) std::swap(fields[0], fields[1]);
    EXPECT_EQ(synchronizer->Agree("fields", fields),
              absl::InvalidArgumentError("agreement 'fields': rank 1 has the fields of rank 0 in another order"));
  });
}

TEST(Synchronizer, SaysWhereRanksMakeDifferentCalls) {
  RunWorld(3, [](Communicator& world) {
    EXPECT_EQ(Agree(world, world.rank() == 1 ? "the states" : "the weights", {{"a", "1"}}),
              absl::FailedPreconditionError(
                  "the ranks make different calls: rank 1 is in 'the states', rank 0 in 'the weights'"));
    EXPECT_EQ(Agree(world, "the weights", {}), absl::OkStatus());
  });
}

}  // namespace
}  // namespace tutti
