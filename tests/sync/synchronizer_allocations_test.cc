// From the first gradient of a step to the last bucket's end, nothing allocates: in no thread of any rank.
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "tests/harness/count_allocations.h"
#include "tests/harness/world.h"
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

INSTANTIATE_TEST_SUITE_P(, SynchronizerAllocations,
                         testing::Combine(testing::Values("gradient_allreduce", "bytegrad"),
                                          testing::Values(Mapping::kAuto, Mapping::kNever)),
                         [](const auto& test) {
                           const bool mapped = std::get<1>(test.param) == Mapping::kAuto;
                           return std::string(std::get<0>(test.param)) + (mapped ? "_mapped" : "_messages");
                         });

}  // namespace
}  // namespace tutti
