// Calls in the background have right results beside other calls. (engine_test.cc tests that nobody polls for them.)
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/harness/world.h"
#include "tests/kernels/differences.h"

namespace tutti {
namespace {

constexpr CallOptions kBackground = {.caller_drives = true, .background = true};

class BackgroundWorldTest : public ::testing::TestWithParam<std::string> {};

TEST_P(BackgroundWorldTest, SumsWhileOtherCallsGoOn) {
  for (const int ranks_per_node : {0, 1, 2}) {
    RunWorld(4, {.transport = GetParam(), .ranks_per_node = ranks_per_node}, [](Communicator& comm) {
      constexpr std::int64_t kCount = 100'003;
      absl::StatusOr<std::unique_ptr<Communicator>> own = comm.Split(/*color=*/0, /*key=*/comm.rank());
      ASSERT_TRUE(own.ok()) << own.status();
      std::thread background([&] {
        std::vector<float> values(kCount);
        for (int round = 0; round < 5; ++round) {
          for (std::int64_t i = 0; i < kCount; ++i) values[i] = static_cast<float>(comm.rank() + i % 7);
          ASSERT_EQ(
              (*own)->AllReduce(values.data(), values.data(), kCount, DType::kF32, ReduceOp::kSum, kBackground).Wait(),
              absl::OkStatus());
          const auto sum = [](std::int64_t i) { return static_cast<float>(6 + 4 * (i % 7)); };
          ASSERT_EQ(kernels::FirstDifference(values, sum), "");
        }
      });
      for (int call = 0; call < 50; ++call) {
        std::int32_t value = comm.rank();
        ASSERT_EQ(comm.AllReduce(&value, &value, 1, DType::kI32, ReduceOp::kSum).Wait(), absl::OkStatus());
        ASSERT_EQ(value, 6);
      }
      background.join();
    });
  }
}

INSTANTIATE_TEST_SUITE_P(, BackgroundWorldTest, ::testing::ValuesIn(WorldTransports()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace tutti
