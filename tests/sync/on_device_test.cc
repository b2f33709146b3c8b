// Synchronizers in memory of GPUs: the weights are those of the same training on the host, and nobody waits for a GPU.
// GPU and NCCL are fakes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "tests/sync/device_training.h"
#include "tutti/bucket_exchange.h"
#include "tutti/devices.h"

namespace tutti {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kSteps = 7;

// The weights of every rank after some steps, and what SaveState then returned.
struct Trained {
  std::vector<std::vector<float>> weights;
  std::vector<std::string> states;
};

Trained Train(int size, const std::string& strategy, MemoryKind kind) {
  Trained trained{std::vector<std::vector<float>>(static_cast<std::size_t>(size)),
                  std::vector<std::string>(static_cast<std::size_t>(size))};
  RunWorld(size, OnDevices(), [&](Communicator& world) {
    DeviceTraining training(world, strategy, kind);
    ASSERT_NE(training.synchronizer, nullptr);
    for (int step = 0; step < kSteps; ++step) ASSERT_EQ(training.Step(), absl::OkStatus());
    const auto rank = static_cast<std::size_t>(world.rank());
    trained.states[rank] = training.synchronizer->SaveState();
    EXPECT_NE(trained.states[rank], "");
    trained.weights[rank] = training.Weights();
    ASSERT_EQ(training.synchronizer->Flush(), absl::OkStatus());
    const std::vector<float> flushed = training.Weights();
    trained.weights[rank].insert(trained.weights[rank].end(), flushed.begin(), flushed.end());
  });
  return trained;
}

class OnDeviceTest : public ::testing::TestWithParam<const char*> {};

TEST_P(OnDeviceTest, TrainsAsOnTheHost) {
  for (const int size : {1, 2, 4}) {
    const Trained on_host = Train(size, GetParam(), MemoryKind::kHost);
    const Trained on_device = Train(size, GetParam(), MemoryKind::kDevice);
    EXPECT_EQ(on_device.weights, on_host.weights) << size << " ranks";
    EXPECT_EQ(on_device.states, on_host.states) << size << " ranks";
    EXPECT_NE(on_device.weights[0][0], 1.0f);
  }
}

INSTANTIATE_TEST_SUITE_P(Strategies, OnDeviceTest,
                         ::testing::Values("gradient_allreduce", "gradient_allreduce:average=false",
                                           "gradient_allreduce:codec=bf16", "bytegrad", "bytegrad:error_feedback=true",
                                           "qadam:warmup_steps=3", "qadam:warmup_steps=3,freeze=variance",
                                           "decentralized", "decentralized:peer_selection_mode=shift_one",
                                           "low_precision_decentralized"));

// A step waits for nothing that the GPU does, and takes no memory from it.
TEST(OnDevice, AStepOnlyEnqueues) {
  for (const char* const strategy : {"bytegrad", "decentralized", "qadam:warmup_steps=2"}) {
    RunWorld(1, OnDevices(), [&](Communicator& world) {
      DeviceTraining training(world, strategy, MemoryKind::kDevice);
      for (int step = 0; step < 4; ++step) ASSERT_EQ(training.Step(), absl::OkStatus());
      const FakeCudaCounts before = FakeCuda::Counts();
      for (int step = 0; step < 3; ++step) ASSERT_EQ(training.Step(), absl::OkStatus());
      const FakeCudaCounts counts = FakeCuda::Counts() - before;
      EXPECT_EQ(counts.synchronizations, 0) << strategy;
      EXPECT_EQ(counts.allocations, 0) << strategy;
      EXPECT_EQ(counts.streams, 0) << strategy;
    });
  }
}

// A whole step, with the training's own kernels, as a graph: each launch is a step with the same gradients.
TEST(OnDevice, AStepCanBeAGraph) {
  RunWorld(2, OnDevices(), [](Communicator& world) {
    DeviceTraining training(world, "gradient_allreduce", MemoryKind::kDevice);
    const float before = training.Weights()[0];
    FakeGraph graph;
    FakeCuda::BeginCapture(training.stream());
    ASSERT_EQ(training.Step(), absl::OkStatus());
    ASSERT_EQ(FakeCuda::EndCapture(training.stream(), &graph), kCudaSuccess);
    EXPECT_EQ(training.Weights()[0], before);
    for (int launch = 1; launch <= 3; ++launch) {
      FakeCuda::LaunchGraph(graph, training.stream());
      // In step 0 the average of gradient 0 begins with 0.125 · 1.5.
      EXPECT_EQ(training.Weights()[0], before - static_cast<float>(launch) * 0.09375f);
    }
    EXPECT_EQ(training.Step(), absl::OkStatus());
  });
}

// Averages of async arrive at their own pace; what the ranks add up to is kept.
TEST(OnDevice, AsyncKeepsTheSumOfTheWeights) {
  RunWorld(3, OnDevices(), [](Communicator& world) {
    DeviceTraining training(world, "async:sync_interval_ms=1,warmup_steps=2", MemoryKind::kDevice);
    for (int step = 0; step < 60; ++step) ASSERT_EQ(training.Step(), absl::OkStatus());
    training.synchronizer->Pause();
    ASSERT_EQ(training.synchronizer->Flush(), absl::OkStatus());
    std::vector<float> weights = training.Weights();
    std::vector<float> lowest = weights;
    std::vector<float> highest = weights;
    const auto count = static_cast<std::int64_t>(weights.size());
    ASSERT_EQ(world.AllReduce(lowest.data(), lowest.data(), count, DType::kF32, ReduceOp::kMin).Wait(),
              absl::OkStatus());
    ASSERT_EQ(world.AllReduce(highest.data(), highest.data(), count, DType::kF32, ReduceOp::kMax).Wait(),
              absl::OkStatus());
    EXPECT_EQ(lowest, highest);
    // The average of what the ranks subtract from weight 0 in step s is 0.5 · 0.125 · (2 + s).
    double expected = 1;
    for (int step = 0; step < 60; ++step) expected -= 0.0625 * (2 + step);
    EXPECT_NEAR(weights[0], expected, 0.02);
  });
}

TEST(OnDevice, ALoadedStateGoesOnBitForBit) {
  for (const char* const strategy : {"bytegrad:error_feedback=true", "low_precision_decentralized"}) {
    RunWorld(2, OnDevices(), [&](Communicator& world) {
      DeviceTraining whole(world, strategy, MemoryKind::kDevice);
      for (int step = 0; step < 3; ++step) ASSERT_EQ(whole.Step(), absl::OkStatus());
      const std::string state = whole.synchronizer->SaveState();
      DeviceTraining second(world, strategy, MemoryKind::kDevice);
      for (int step = 0; step < 3; ++step) ASSERT_EQ(second.Step(), absl::OkStatus());
      ASSERT_EQ(second.synchronizer->LoadState({state}), absl::OkStatus());
      EXPECT_EQ(second.synchronizer->SaveState(), state);
      for (int step = 0; step < 3; ++step) {
        ASSERT_EQ(whole.Step(), absl::OkStatus());
        ASSERT_EQ(second.Step(), absl::OkStatus());
      }
      EXPECT_EQ(second.Weights(), whole.Weights()) << strategy;
    });
  }
}

TEST(OnDevice, TheMomentsOfQAdamAreSavedAndLoaded) {
  RunWorld(2, OnDevices(), [&](Communicator& world) {
    DeviceTraining training(world, "qadam:warmup_steps=2", MemoryKind::kDevice);
    for (int step = 0; step < 4; ++step) ASSERT_EQ(training.Step(), absl::OkStatus());
    const std::string saved = training.optimizer->SaveState();
    ASSERT_EQ(training.Step(), absl::OkStatus());
    EXPECT_NE(training.optimizer->SaveState(), saved);
    ASSERT_EQ(training.optimizer->LoadState(saved), absl::OkStatus());
    EXPECT_EQ(training.optimizer->SaveState(), saved);
  });
}

TEST(OnDevice, StateIsBroadcastAndComparedInBothMemories) {
  RunWorld(3, OnDevices(), [](Communicator& world) {
    const DeviceTraining training(world, "bytegrad", MemoryKind::kDevice);
    const FakeMemory on_device(world.rank(), 40);
    std::vector<float> on_host(10, static_cast<float>(world.rank()));
    std::fill_n(on_device.floats(), 10, static_cast<float>(world.rank()));
    const StateMemory both[] = {{on_device.data(), 40, "device"}, {on_host.data(), 40, "host"}};
    const absl::Status differ = training.synchronizer->CheckState(both);
    EXPECT_EQ(differ.code(), absl::StatusCode::kDataLoss) << differ;
    EXPECT_THAT(std::string(differ.message()), HasSubstr("hash of device"));
    ASSERT_EQ(training.synchronizer->BroadcastState(both), absl::OkStatus());
    EXPECT_EQ(on_device.floats()[9], 0);
    EXPECT_EQ(on_host[9], 0);
  });
}

TEST(OnDevice, UnusedParametersAreAgreedOn) {
  RunWorld(2, OnDevices(), [](Communicator& world) {
    DeviceTraining training(world, "gradient_allreduce", MemoryKind::kDevice, {.allow_unused = true});
    Synchronizer& synchronizer = *training.synchronizer;
    ASSERT_EQ(synchronizer.BeginBackward(), absl::OkStatus());
    synchronizer.MarkReady(3);
    if (world.rank() == 1) synchronizer.MarkReady(1);
    ASSERT_EQ(synchronizer.FinishBackward(), absl::OkStatus());
    EXPECT_TRUE(synchronizer.used(3));
    EXPECT_TRUE(synchronizer.used(1));
    EXPECT_FALSE(synchronizer.used(0));
  });
}

TEST(OnDevice, AScaleOfTheLossScalesWhatIsHeldBack) {
  RunWorld(2, OnDevices(), [](Communicator& world) {
    std::vector<std::string> states;
    for (const MemoryKind kind : {MemoryKind::kHost, MemoryKind::kDevice}) {
      DeviceTraining training(world, "bytegrad:error_feedback=true", kind);
      for (int step = 0; step < 2; ++step) ASSERT_EQ(training.Step(), absl::OkStatus());
      ASSERT_EQ(training.synchronizer->SetLossScale(3), absl::OkStatus());
      states.push_back(training.synchronizer->SaveState());
    }
    EXPECT_EQ(states[1], states[0]);
  });
}

TEST(OnDevice, AutotuningHasNothingToTune) {
  RunWorld(2, OnDevices(), [](Communicator& world) {
    const DeviceTraining training(world, "gradient_allreduce", MemoryKind::kDevice, {.autotune = true});
    EXPECT_EQ(training.synchronizer->tuning().state, TuningState::kNothingToTune);
    EXPECT_THAT(training.synchronizer->tuning().reason, HasSubstr("GPU"));
  });
}

TEST(OnDevice, ABackwardThatIsGivenUpCanBeginAnew) {
  RunWorld(2, OnDevices(), [](Communicator& world) {
    DeviceTraining training(world, "gradient_allreduce", MemoryKind::kDevice);
    ASSERT_EQ(training.synchronizer->BeginBackward(), absl::OkStatus());
    for (int i = 4; i >= 2; --i) training.synchronizer->MarkReady(i);
    ASSERT_EQ(training.synchronizer->CancelBackward(), absl::OkStatus());
    training.synchronizer->ZeroGradients();
    EXPECT_EQ(training.Step(), absl::OkStatus());
  });
}

TEST(OnDevice, GradientsAddUpWithoutAnExchange) {
  RunWorld(2, OnDevices(), [](Communicator& world) {
    DeviceTraining training(world, "gradient_allreduce", MemoryKind::kDevice);
    training.synchronizer->set_synchronize(false);
    ASSERT_EQ(training.Step(), absl::OkStatus());
    // In step 0 gradient 0 of rank r begins with 0.125 · (r + 1).
    EXPECT_EQ(training.Weights()[0], 1 - 0.0625f * static_cast<float>(world.rank() + 1));
  });
}

// ---- errors ----

absl::Status CreateWith(Communicator& world, void* weights, MemoryKind kind) {
  return Synchronizer::Create(world, {{.name = "w", .count = 2, .shape = "2", .weights = weights}},
                              {.strategy = "decentralized", .memory = kind})
      .status();
}

TEST(OnDevice, WeightsOfAnotherMemoryAreRefused) {
  RunWorld(2, OnDevices(), [](Communicator& world) {
    const FakeMemory on_device(world.rank(), 8);
    const FakeMemory elsewhere(world.rank() + 2, 8);
    std::vector<float> on_host(2);
    absl::Status status = CreateWith(world, on_host.data(), MemoryKind::kDevice);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("parameter w"), HasSubstr("memory of the host")));
    status = CreateWith(world, elsewhere.data(), MemoryKind::kDevice);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    status = CreateWith(world, on_device.data(), MemoryKind::kHost);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("must be of the host"));
  });
}

TEST(OnDevice, ACommunicatorWithoutAGpuHasNoMemoryThere) {
  RunWorld(2, [](Communicator& world) {
    std::vector<float> on_host(2);
    absl::Status status = CreateWith(world, on_host.data(), MemoryKind::kDevice);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("cuda_device"));
    status = world.Allocate(8, MemoryKind::kDevice).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  });
}

TEST(OnDevice, RanksThatNameDifferentMemoriesAreTold) {
  RunWorld(2, OnDevices(), [](Communicator& world) {
    const absl::Status status =
        Synchronizer::Create(world, {{.name = "w", .count = 2, .shape = "2"}},
                             {.memory = world.rank() == 0 ? MemoryKind::kHost : MemoryKind::kDevice})
            .status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("memory"), HasSubstr("rank 1")));
  });
}

// What a GPU refuses to enqueue ends the training on all ranks.
TEST(OnDevice, AnErrorOfCudaEndsTheStepOnAllRanks) {
  RunWorld(2, OnDevices(), [](Communicator& world) {
    DeviceTraining training(world, "decentralized", MemoryKind::kDevice);
    ASSERT_EQ(training.Step(), absl::OkStatus());
    world.Barrier().Wait().IgnoreError();  // may hear of the error already
    if (world.rank() == 1) FakeCuda::FailNext("copy_async", 719);
    absl::Status status;
    for (int step = 0; step < 1000 && status.ok(); ++step) status = training.Step();
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(std::string(status.message()), HasSubstr(": a copy: error of the fake CUDA"));
  });
}

// The peers would wait for the buckets of a rank that computes on a stream of another GPU.
TEST(OnDevice, AStreamOfAnotherGpuEndsTheStepOnAllRanks) {
  RunWorld(2, OnDevices(), [](Communicator& world) {
    DeviceTraining training(world, "bytegrad", MemoryKind::kDevice);
    absl::Status status = training.Step();  // may hear of the error already
    CUstream_st* of_other = nullptr;
    ASSERT_EQ(FakeCuda::Table().set_device(7), kCudaSuccess);
    ASSERT_EQ(FakeCuda::Table().create_stream(&of_other), kCudaSuccess);
    ASSERT_EQ(FakeCuda::Table().set_device(world.rank()), kCudaSuccess);
    if (world.rank() == 1) training.synchronizer->SetStream(of_other);
    const absl::Time begin = absl::Now();
    for (int step = 0; step < 3 && status.ok(); ++step) status = training.Step();
    status.Update(world.status());
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("must be a stream of device 1"));
    EXPECT_LT(absl::Now() - begin, absl::Seconds(20));
    EXPECT_EQ(FakeCuda::Table().synchronize_stream(of_other), kCudaSuccess);
    EXPECT_EQ(FakeCuda::Table().destroy_stream(of_other), kCudaSuccess);
  });
}

// Another thread captures a graph of the model meanwhile.
TEST(OnDevice, MemoryIsMadeAndReadDuringACapture) {
  RunWorld(1, OnDevices(), [](Communicator& world) {
    CUstream_st* stream = nullptr;
    ASSERT_EQ(FakeCuda::Table().set_device(0), kCudaSuccess);
    ASSERT_EQ(FakeCuda::Table().create_stream(&stream), kCudaSuccess);
    FakeCuda::BeginCapture(stream);
    const absl::StatusOr<std::unique_ptr<Synchronizer>> made =
        Synchronizer::Create(world, {{.name = "a", .count = 8, .shape = "8"}},
                             {.strategy = "bytegrad:error_feedback=true", .memory = MemoryKind::kDevice});
    ASSERT_TRUE(made.ok()) << made.status();
    EXPECT_TRUE((*made)->SaveState().size() > 0);
    float value = 0;
    EXPECT_EQ(CopyMemory(&value, (*made)->GradientView(0).get(), 4), absl::OkStatus());
    FakeGraph graph;
    EXPECT_EQ(FakeCuda::EndCapture(stream, &graph), kCudaSuccess);
    EXPECT_EQ(FakeCuda::Table().destroy_stream(stream), kCudaSuccess);
  });
}

// With async, too, whose rounds have a communicator of their own.
TEST(OnDevice, AnErrorOfCudaEndsTheRoundsOfAsync) {
  RunWorld(2, OnDevices(), [](Communicator& world) {
    DeviceTraining training(world, "async:sync_interval_ms=1,warmup_steps=0", MemoryKind::kDevice);
    world.Barrier().Wait().IgnoreError();  // may hear of the error already
    if (world.rank() == 1) FakeCuda::FailNext("copy_async", 719);
    absl::Status status;
    const absl::Time deadline = absl::Now() + absl::Seconds(30);
    while (status.ok() && absl::Now() < deadline) status = training.Step();
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(std::string(status.message()), HasSubstr(": a copy: error of the fake CUDA"));
  });
}

// New buckets are zero before anybody can write to them, on whatever stream.
TEST(OnDevice, NewBucketsAreZeroAtOnce) {
  RunWorld(1, OnDevices(), [](Communicator& world) {
    ASSERT_EQ(FakeCuda::Table().set_device(0), kCudaSuccess);
    ASSERT_EQ(FakeCuda::Launch(nullptr, [] { absl::SleepFor(absl::Milliseconds(50)); }), kCudaSuccess);
    const absl::StatusOr<std::unique_ptr<Synchronizer>> made =
        Synchronizer::Create(world, {{.name = "a", .count = 8, .shape = "8"}},
                             {.strategy = "gradient_allreduce", .memory = MemoryKind::kDevice});
    ASSERT_TRUE(made.ok()) << made.status();
    const auto* const gradient = static_cast<const float*>((*made)->GradientView(0).get());
    EXPECT_EQ(gradient[0], 0);
    EXPECT_EQ(gradient[7], 0);
  });
}

// A rank that leaves in the middle of a training is named to the others by one of the next steps.
TEST(OnDevice, ARankThatLeavesEndsTheSteps) {
  for (const char* const strategy : {"bytegrad", "decentralized", "qadam"}) {
    RunWorld(3, OnDevices(), [&](Communicator& world) {
      DeviceTraining training(world, strategy, MemoryKind::kDevice);
      for (int step = 0; step < 2; ++step) ASSERT_EQ(training.Step(), absl::OkStatus());
      if (world.rank() == 2) return;
      absl::Status status;
      for (int step = 0; step < 1000 && status.ok(); ++step) status = training.Step();
      EXPECT_FALSE(status.ok()) << strategy;
      EXPECT_THAT(std::string(status.message()), HasSubstr("rank 2"));
    });
  }
}

}  // namespace
}  // namespace tutti
