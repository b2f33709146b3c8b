// Buckets in memory of GPUs: their averages and residuals are those of the host. GPU and NCCL are fakes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "tests/harness/fake_cuda.h"
#include "tests/sync/bucket_training.h"
#include "tutti/bucket_exchange.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

const ParameterCounts kCounts = {{"a", 700}, {"b", 3}, {"c", 1201}, {"nothing", 0}};

// What a rank gets in each step, and its state at the end; the buckets are cut anew twice, and once the state is
// loaded.
std::pair<std::vector<Gradients>, std::string> Train(Communicator& world, const std::string& strategy,
                                                     MemoryKind kind) {
  std::vector<Gradients> results;
  const auto seed = static_cast<std::uint32_t>(10 * world.rank());
  BucketTraining training(world, strategy, kCounts, /*allocated=*/true, kind);
  for (const Buckets& buckets : {Buckets{{"c", "b"}, {"a"}, {"nothing"}}, Buckets{{"a", "c"}, {"b"}, {"nothing"}}}) {
    training.SetBuckets(buckets);
    for (std::uint32_t step = 0; step < 3; ++step) {
      results.push_back(training.Step(RandomGradientsOf(kCounts, seed + step)));
    }
    training.Move(0);
    results.push_back(training.Step(RandomGradientsOf(kCounts, seed + 7)));
    EXPECT_EQ(training.exchange().SetLossScale(training.exchange().loss_scale() * 2), absl::OkStatus());
  }
  const std::string state = training.exchange().SaveState().value();
  EXPECT_EQ(training.exchange().LoadState({state}), absl::OkStatus());
  EXPECT_EQ(training.exchange().SaveState().value(), state);
  return {results, state};
}

TEST(BucketExchangeOnDevice, ExchangesAsOnTheHost) {
  for (const char* const strategy : {"gradient_allreduce", "bytegrad", "bytegrad:error_feedback=true"}) {
    for (const int size : {1, 2, 4}) {
      RunWorld(size, OnDevices(), [&](Communicator& world) {
        const auto on_host = Train(world, strategy, MemoryKind::kHost);
        const auto on_device = Train(world, strategy, MemoryKind::kDevice);
        EXPECT_EQ(on_device.second, on_host.second) << strategy << " on " << size;
        if (std::string(strategy) != "gradient_allreduce") {
          EXPECT_EQ(on_device.first, on_host.first) << strategy << " on " << size;
        }
      });
    }
  }
}

// The gradients are computed on a stream, after the host has looked at their exchange; the next exchange begins while
// the last one is under way.
TEST(BucketExchangeOnDevice, NobodyWaitsForTheGpu) {
  RunWorld(2, OnDevices(), [](Communicator& world) {
    const CudaRuntime& cuda = FakeCuda::Table();
    ASSERT_EQ(cuda.set_device(world.rank()), kCudaSuccess);
    CUstream_st* stream = nullptr;
    ASSERT_EQ(cuda.create_stream(&stream), kCudaSuccess);
    const Buffer bucket = *world.Allocate(400, MemoryKind::kDevice);
    const auto exchange = MakeBucketExchange(world, "gradient_allreduce:average=false", MemoryKind::kDevice);
    ASSERT_EQ(exchange->SetBucket(0, {DType::kF32, {{"w", 100}}}, bucket.data()), absl::OkStatus());
    float* const values = bucket.as<float>().data();
    std::atomic<int> looked = 0;  // at the exchanges of so many steps
    for (int step = 0; step < 4; ++step) {
      ASSERT_EQ(FakeCuda::Launch(stream,
                                 [values, step, &looked, &world] {
                                   const absl::Time limit = absl::Now() + absl::Minutes(1);
                                   while (looked <= step && absl::Now() < limit) absl::SleepFor(absl::Milliseconds(1));
                                   EXPECT_GT(looked, step) << "the host waits for the gradients";
                                   // From the second step on the last sum counts once, as with torch's accumulation.
                                   const float last = step == 0 || world.rank() != 0 ? 0.0f : values[99];
                                   std::fill_n(values, 100, last + static_cast<float>(world.rank() + 1));
                                 }),
                kCudaSuccess);
      Work work = exchange->Exchange(0, values, absl::ZeroDuration(), stream);
      EXPECT_FALSE(work.done());
      looked = step + 1;
      ASSERT_EQ(work.WaitOnStream(stream), absl::OkStatus());
    }
    ASSERT_EQ(cuda.synchronize_stream(stream), kCudaSuccess);
    EXPECT_EQ(values[0], 4 * 3);
    EXPECT_EQ(exchange->step(), 4);
    ASSERT_EQ(cuda.destroy_stream(stream), kCudaSuccess);
  });
}

// A rank that gives up while its peers wait for it ends their exchanges, long before the deadline.
TEST(BucketExchangeOnDevice, ARankThatGivesUpEndsThePeers) {
  RunWorld(2, OnDevices(), [](Communicator& world) {
    const Buffer bucket = *world.Allocate(400, MemoryKind::kDevice);
    std::unique_ptr<BucketExchange> exchange = MakeBucketExchange(world, "gradient_allreduce", MemoryKind::kDevice);
    for (int b = 0; b < 2; ++b) {
      ASSERT_EQ(exchange->SetBucket(b, {DType::kF32, {{b == 0 ? "w" : "v", 50}}}, bucket.data() + 200 * b),
                absl::OkStatus());
    }
    const absl::Time begin = absl::Now();
    // Rank 0 has sent a bucket that rank 1 never sends.
    if (world.rank() == 0) {
      Work sent = exchange->Exchange(0, bucket.data());
      exchange.reset();
      EXPECT_FALSE(sent.Wait().ok());
    } else {
      exchange.reset();
    }
    EXPECT_LT(absl::Now() - begin, absl::Seconds(20));
  });
}

// A rank that cannot copy its residuals leaves SetBucket, and its peers then enter an agreement.
TEST(BucketExchangeOnDevice, ACopyThatFailsEndsThePeers) {
  RunWorld(2, OnDevices(), [](Communicator& world) {
    BucketTraining training(world, "bytegrad:error_feedback=true", kCounts, /*allocated=*/true, MemoryKind::kDevice);
    training.SetBuckets({{"c", "b"}, {"a"}});
    training.Step(RandomGradientsOf(kCounts, 1));
    const Buffer bucket = *world.Allocate(4 * 1201, MemoryKind::kDevice);
    ASSERT_EQ(world.Barrier().Wait(), absl::OkStatus());
    const absl::Time begin = absl::Now();
    if (world.rank() == 0) FakeCuda::FailNext("copy_async", 2);
    const absl::Status set = training.exchange().SetBucket(0, {DType::kF32, {{"c", 1201}}}, bucket.data());
    EXPECT_FALSE(set.ok());
    EXPECT_THAT(std::string(set.message()), HasSubstr("between the host and GPU"));
    EXPECT_LT(absl::Now() - begin, absl::Seconds(20));
  });
}

// Such an exchange counts for no rank, and its residuals stay.
TEST(BucketExchangeOnDevice, AStreamOfAnotherGpuIsRefused) {
  RunWorld(2, OnDevices(), [](Communicator& world) {
    const Buffer bucket = *world.Allocate(400, MemoryKind::kDevice);
    const auto exchange = MakeBucketExchange(world, "bytegrad:error_feedback=true", MemoryKind::kDevice);
    ASSERT_EQ(exchange->SetBucket(0, {DType::kF32, {{"w", 100}}}, bucket.data()), absl::OkStatus());
    ASSERT_EQ(exchange->Exchange(0, bucket.data()).Wait(), absl::OkStatus());
    if (world.rank() == 0) {
      CUstream_st* of_other = nullptr;
      ASSERT_EQ(FakeCuda::Table().set_device(7), kCudaSuccess);
      ASSERT_EQ(FakeCuda::Table().create_stream(&of_other), kCudaSuccess);
      const absl::Status status = exchange->Exchange(0, bucket.data(), absl::ZeroDuration(), of_other).Wait();
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
      EXPECT_EQ(FakeCuda::Table().destroy_stream(of_other), kCudaSuccess);
    }
    EXPECT_EQ(exchange->step(), 1);
    EXPECT_TRUE(exchange->SaveState().ok());
    EXPECT_EQ(exchange->Exchange(0, bucket.data()).Wait(), absl::OkStatus());
    EXPECT_EQ(exchange->step(), 2);
  });
}

TEST(BucketExchangeOnDevice, BucketsOfTheHostMoveToNoGpu) {
  RunWorld(2, OnDevices(), [](Communicator& world) {
    const auto exchange = MakeBucketExchange(world, "gradient_allreduce");
    std::vector<float> on_host(100, 1.0f);
    const Buffer on_gpu = *world.Allocate(400, MemoryKind::kDevice);
    ASSERT_EQ(exchange->SetBucket(0, {DType::kF32, {{"w", 100}}}, on_host.data()), absl::OkStatus());
    const absl::Status status = exchange->Exchange(0, on_gpu.data()).Wait();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("is given memory of a GPU"));
    EXPECT_EQ(exchange->Exchange(0, on_host.data()).Wait(), absl::OkStatus());
  });
}

TEST(BucketExchangeOnDevice, MemoryOfTheHostIsRefused) {
  RunWorld(2, OnDevices(), [](Communicator& world) {
    const auto exchange = MakeBucketExchange(world, "bytegrad", MemoryKind::kDevice);
    std::vector<float> on_host(100);
    const absl::Status status = exchange->SetBucket(0, {DType::kF32, {{"w", 100}}}, on_host.data());
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("memory of the host, must be of GPU"));
  });
}

}  // namespace
}  // namespace tutti
