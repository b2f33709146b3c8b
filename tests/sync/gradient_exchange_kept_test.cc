// Gradients that are not zeroed: what the last exchange left in the views counts once, whatever is added to it.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>

#include "tests/harness/world.h"
#include "tutti/synchronizer.h"

namespace tutti {
namespace {

constexpr std::int64_t kCount = 50;
constexpr int kRanks = 3;

std::unique_ptr<Synchronizer> Make(Communicator& world, const std::string& strategy) {
  const std::vector<Parameter> parameters = {{"first", DType::kF32, kCount, "50"},
                                             {"second", DType::kF32, kCount, "50"}};
  absl::StatusOr<std::unique_ptr<Synchronizer>> made = Synchronizer::Create(
      world, parameters, {.strategy = strategy, .bucket_bytes = 200, .first_bucket_bytes = 200, .allow_unused = true});
  EXPECT_TRUE(made.ok()) << made.status();
  return made.ok() ? *std::move(made) : nullptr;
}

// A backward that adds `gradient` to the first `used` parameters.
void Backward(Synchronizer& synchronizer, float gradient, int used = 2) {
  ASSERT_EQ(synchronizer.BeginBackward(), absl::OkStatus());
  for (int i = 0; i < used; ++i) {
    auto* const view = static_cast<float*>(synchronizer.GradientView(i).get());
    for (std::int64_t k = 0; k < kCount; ++k) view[k] += gradient;
    synchronizer.MarkReady(i);
  }
  ASSERT_EQ(synchronizer.FinishBackward(), absl::OkStatus());
}

float ValueOf(const Synchronizer& synchronizer, int i) {
  const auto* const view = static_cast<const float*>(synchronizer.GradientView(i).get());
  EXPECT_EQ(std::count(view, view + kCount, view[0]), kCount);
  return view[0];
}

// Ranks add 3, 6 and 9, so that averages are whole numbers.
float GradientOf(const Communicator& world) { return static_cast<float>(3 * (world.rank() + 1)); }

class KeptGradients : public ::testing::TestWithParam<const char*> {
 protected:
  // The result of an exchange of the gradients of all ranks.
  static float exchanged() { return std::string(GetParam()).find("false") == std::string::npos ? 6 : 18; }
};

TEST_P(KeptGradients, CountOnce) {
  RunWorld(kRanks, [](Communicator& world) {
    const std::unique_ptr<Synchronizer> synchronizer = Make(world, GetParam());
    ASSERT_NE(synchronizer, nullptr);
    for (int backward = 1; backward <= 4; ++backward) {
      Backward(*synchronizer, GradientOf(world));
      EXPECT_EQ(ValueOf(*synchronizer, 0), static_cast<float>(backward) * exchanged());
      EXPECT_EQ(ValueOf(*synchronizer, 1), static_cast<float>(backward) * exchanged());
    }
  });
}

TEST_P(KeptGradients, CountOnceWhenMoreIsAccumulatedOnEachRank) {
  RunWorld(kRanks, [](Communicator& world) {
    const std::unique_ptr<Synchronizer> synchronizer = Make(world, GetParam());
    ASSERT_NE(synchronizer, nullptr);
    Backward(*synchronizer, GradientOf(world));
    synchronizer->set_synchronize(false);
    Backward(*synchronizer, GradientOf(world));
    Backward(*synchronizer, GradientOf(world));
    synchronizer->set_synchronize(true);
    Backward(*synchronizer, GradientOf(world));
    EXPECT_EQ(ValueOf(*synchronizer, 0), 4 * exchanged());
  });
}

TEST_P(KeptGradients, CountOnceWhereNoneIsAdded) {
  RunWorld(kRanks, [](Communicator& world) {
    const std::unique_ptr<Synchronizer> synchronizer = Make(world, GetParam());
    ASSERT_NE(synchronizer, nullptr);
    Backward(*synchronizer, GradientOf(world));
    Backward(*synchronizer, GradientOf(world), /*used=*/1);
    EXPECT_EQ(ValueOf(*synchronizer, 0), 2 * exchanged());
    EXPECT_EQ(ValueOf(*synchronizer, 1), exchanged());
  });
}

TEST_P(KeptGradients, MayBeZeroedOrWrittenAnew) {
  RunWorld(kRanks, [](Communicator& world) {
    const std::unique_ptr<Synchronizer> synchronizer = Make(world, GetParam());
    ASSERT_NE(synchronizer, nullptr);
    for (int backward = 0; backward < 3; ++backward) {
      Backward(*synchronizer, GradientOf(world));
      EXPECT_EQ(ValueOf(*synchronizer, 0), exchanged());
      synchronizer->ZeroGradients();
    }
  });
}

// A caller that zeroes its gradients before it gives up the backward, while a bucket is on its way, finds no result of
// that bucket in them afterwards.
TEST_P(KeptGradients, DoNotComeFromABackwardThatWasGivenUp) {
  RunWorld(kRanks, [](Communicator& world) {
    const std::unique_ptr<Synchronizer> synchronizer = Make(world, GetParam());
    ASSERT_NE(synchronizer, nullptr);
    for (int i = 0; i < 2; ++i) std::fill_n(static_cast<float*>(synchronizer->GradientView(i).get()), kCount, 9.0f);
    ASSERT_EQ(synchronizer->BeginBackward(), absl::OkStatus());
    synchronizer->MarkReady(1);  // its bucket leaves first
    ASSERT_EQ(synchronizer->CancelBackward(), absl::OkStatus());
    EXPECT_EQ(ValueOf(*synchronizer, 0), 9);
    EXPECT_EQ(ValueOf(*synchronizer, 1), 0);
  });
}

// Residuals of gradients of the old weights do not reach the new weights.
TEST(HeldBackGradients, AreForgottenByRestart) {
  RunWorld(kRanks, [](Communicator& world) {
    const std::unique_ptr<Synchronizer> synchronizer = Make(world, "bytegrad:codec=topk,error_feedback=true");
    ASSERT_NE(synchronizer, nullptr);
    for (const bool restarts : {false, true}) {
      Backward(*synchronizer, GradientOf(world));
      synchronizer->ZeroGradients();
      if (restarts) {
        ASSERT_EQ(synchronizer->Restart(), absl::OkStatus());
      }
      Backward(*synchronizer, 0);
      const auto* const view = static_cast<const float*>(synchronizer->GradientView(0).get());
      EXPECT_EQ(std::count(view, view + kCount, 0.0f) == kCount, restarts);
      synchronizer->ZeroGradients();
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Strategies, KeptGradients,
                         ::testing::Values("gradient_allreduce:average=false", "gradient_allreduce",
                                           "bytegrad:average=false,codec=fp16", "bytegrad:codec=fp16"),
                         [](const auto& test) { return "Strategy" + std::to_string(test.index); });

}  // namespace
}  // namespace tutti
