// From the first gradient of a step to the last bucket's end no thread of any rank allocates.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "tests/harness/count_allocations.h"
#include "tests/harness/world.h"
#include "tutti/bucket_exchange.h"
#include "tutti/qadam.h"
#include "tutti/synchronizer.h"

namespace tutti {
namespace {

using Mapping = CommunicatorOptions::Mapping;

class SynchronizerAllocations : public testing::TestWithParam<std::tuple<const char*, Mapping>> {};

TEST_P(SynchronizerAllocations, NoneInAStep) {
  const auto [strategy, mapping] = GetParam();
  WorldOptions options;
  options.communicator.mapping = mapping;
  RunWorld(3, options, [strategy = strategy](Communicator& comm) {
    const std::vector<Parameter> parameters = {
        {"a", DType::kF32, 30'000, "30000"}, {"b", DType::kBF16, 7, "7"}, {"c", DType::kF32, 5'000, "5000"}};
    const auto made = Synchronizer::Create(
        comm, parameters, {.strategy = strategy, .bucket_bytes = 64 << 10, .first_bucket_bytes = 1 << 10});
    ASSERT_TRUE(made.ok()) << made.status();
    Synchronizer& synchronizer = **made;
    ASSERT_GE(synchronizer.bucket_count(), 3);
    const auto steps = [&](int count) {
      for (int step = 0; step < count; ++step) {
        EXPECT_EQ(synchronizer.BeginBackward(), absl::OkStatus());
        for (int i = 2; i >= 0; --i) synchronizer.MarkReady(i);
        EXPECT_EQ(synchronizer.FinishBackward(), absl::OkStatus());
      }
    };
    steps(10);
    EXPECT_EQ(AllocationsDuring(comm, [&] { steps(100); }), 0);
  });
}

TEST(QAdamAllocations, NoneInAStepOfEitherPhase) {
  RunWorld(3, [](Communicator& comm) {
    constexpr std::int64_t kCount = 5'000;
    std::vector<float> weights(kCount);
    const auto synchronizer =
        Synchronizer::Create(comm, {{"p", DType::kF32, kCount, "5000"}}, {.strategy = "qadam:warmup_steps=20"});
    ASSERT_TRUE(synchronizer.ok()) << synchronizer.status();
    const auto qadam = QAdam::Create(**synchronizer, {{weights.data()}}, {{}});
    ASSERT_TRUE(qadam.ok()) << qadam.status();
    const auto steps = [&](int count) {
      for (int step = 0; step < count; ++step) {
        EXPECT_EQ((*synchronizer)->BeginBackward(), absl::OkStatus());
        *static_cast<float*>((*synchronizer)->GradientView(0).get()) = 1;
        (*synchronizer)->MarkReady(0);
        EXPECT_EQ((*synchronizer)->FinishBackward(), absl::OkStatus());
        EXPECT_EQ((*qadam)->Step(), absl::OkStatus());
      }
    };
    for (int phase = 0; phase < 2; ++phase) {
      steps(10);
      EXPECT_EQ(AllocationsDuring(comm, [&] { steps(10); }), 0) << "phase " << phase;
      EXPECT_TRUE((*qadam)->frozen());
    }
  });
}

TEST(QAdamAllocations, WantOfMemoryOfOneRankIsTheErrorOfAll) {
  RunWorld(3, [](Communicator& comm) {
    constexpr std::int64_t kCount = 1 << 20;
    std::vector<float> weights(kCount);
    const auto synchronizer =
        Synchronizer::Create(comm, {{"p", DType::kF32, kCount, "1048576"}}, {.strategy = "qadam"});
    ASSERT_TRUE(synchronizer.ok()) << synchronizer.status();
    const auto make = [&] { return QAdam::Create(**synchronizer, {{weights.data()}}, {{}}).status(); };
    const std::size_t any = most_bytes;
    if (comm.rank() == 1) most_bytes = 1 << 20;
    const absl::Status refused = make();
    most_bytes = any;
    EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted) << refused;
    EXPECT_THAT(std::string(refused.message()), testing::HasSubstr("no memory for m and v of QAdam, 8388608 bytes"));
    EXPECT_EQ(make(), absl::OkStatus());
  });
}

TEST(BucketExchangeAllocations, NoneWhereverABucketLies) {
  RunWorld(3, [](Communicator& comm) {
    constexpr std::int64_t kCount = 5'000;
    std::vector<float> memory(2 * kCount);
    const auto exchange = BucketExchange::Create(comm, "bytegrad:error_feedback=true");
    ASSERT_TRUE(exchange.ok()) << exchange.status();
    ASSERT_EQ((*exchange)->SetBucket(0, {DType::kF32, {{"p", kCount}}}, memory.data()), absl::OkStatus());
    const auto steps = [&](int count) {
      for (int step = 0; step < count; ++step) {
        EXPECT_EQ((*exchange)->Exchange(0, memory.data() + step % 2 * kCount).Wait(), absl::OkStatus());
      }
    };
    steps(10);
    EXPECT_EQ(AllocationsDuring(comm, [&] { steps(100); }), 0);
  });
}

INSTANTIATE_TEST_SUITE_P(, SynchronizerAllocations,
                         testing::Combine(testing::Values("gradient_allreduce", "bytegrad"),
                                          testing::Values(Mapping::kAuto, Mapping::kNever)),
                         [](const auto& test) {
                           const bool mapped = std::get<1>(test.param) == Mapping::kAuto;
                           return std::string(std::get<0>(test.param)) + (mapped ? "_mapped" : "_messages");
                         });

}  // namespace
}  // namespace tutti
