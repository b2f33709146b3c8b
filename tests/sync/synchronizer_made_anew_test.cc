// Synchronizers are made, used for a step and destroyed, and their memory gets other owners, while peers may still read
// memory that this rank has given back.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/harness/sweeps.h"
#include "tests/harness/world.h"
#include "tutti/synchronizer.h"

namespace tutti {
namespace {

constexpr int kRanks = 3;
constexpr std::int64_t kCount = 40'000;

// Overwrites free memory of the arena, as the next owner of that memory would.
void FillWhatIsFree(Communicator& world, std::int64_t bytes) {
  std::vector<Buffer> taken;
  for (int i = 0; i < 4; ++i) {
    absl::StatusOr<Buffer> buffer = world.Allocate(bytes);
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    std::memset(buffer->data(), 0xb7, static_cast<std::size_t>(bytes));
    taken.push_back(*std::move(buffer));
  }
}

// Makes one step of a new synchronizer with weights or gradients of this rank, and returns the weights or gradients
// then.
std::vector<float> OneStep(Communicator& world, const std::string& strategy, int round) {
  std::vector<float> weights(kCount, static_cast<float>(round));
  absl::StatusOr<std::unique_ptr<Synchronizer>> made =
      Synchronizer::Create(world, {{"weight", DType::kF32, kCount, "40000", weights.data()}}, {.strategy = strategy});
  EXPECT_TRUE(made.ok()) << made.status();
  if (!made.ok()) return {};
  Synchronizer& synchronizer = **made;
  EXPECT_EQ(synchronizer.BeginForward(), absl::OkStatus());
  EXPECT_EQ(synchronizer.BeginBackward(), absl::OkStatus());
  const std::shared_ptr<void> view = synchronizer.GradientView(0);
  auto* const gradient = static_cast<float*>(view.get());
  for (std::int64_t k = 0; gradient != nullptr && k < kCount; ++k) {
    gradient[k] = static_cast<float>((k + world.rank() + round) % 17 - 8);
  }
  synchronizer.MarkReady(0);
  EXPECT_EQ(synchronizer.FinishBackward(), absl::OkStatus());
  if (gradient != nullptr) std::copy_n(gradient, kCount, weights.data());
  EXPECT_EQ(synchronizer.BeforeStep(), absl::OkStatus());
  EXPECT_EQ(synchronizer.AfterStep(), absl::OkStatus());
  EXPECT_EQ(synchronizer.Flush(), absl::OkStatus());
  return weights;
}

class MadeAnew : public ::testing::TestWithParam<std::tuple<std::string, const char*>> {};

TEST_P(MadeAnew, IsRightWhateverBecomesOfTheMemoryOfTheLast) {
  const auto& [transport, strategy] = GetParam();
  constexpr int kRounds = Repetitions(60);
  std::vector<std::vector<std::vector<float>>> results(kRounds, std::vector<std::vector<float>>(kRanks));
  RunWorld(kRanks, {.transport = transport}, [&, &strategy = strategy](Communicator& world) {
    for (int round = 0; round < kRounds && !::testing::Test::HasFailure(); ++round) {
      results[round][world.rank()] = OneStep(world, strategy, round);
      FillWhatIsFree(world, kCount * 4);
    }
  });
  for (int round = 0; round < kRounds; ++round) {
    for (int rank = 1; rank < kRanks; ++rank) {
      ASSERT_EQ(results[round][rank], results[round][0]) << "round " << round << ", rank " << rank;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Strategies, MadeAnew,
    ::testing::Combine(::testing::ValuesIn(WorldTransports()),
                       ::testing::Values("bytegrad:codec=fp16", "bytegrad:codec=bf16", "bytegrad:codec=uint8_block",
                                         "bytegrad:codec=minmax_uint8", "low_precision_decentralized")),
    [](const auto& test) { return absl::StrCat(std::get<0>(test.param), test.index); });

class AsyncMadeAnew : public ::testing::TestWithParam<std::string> {};

// The background threads of async stop at different times, in the middle of rounds.
TEST_P(AsyncMadeAnew, DoesNothingToTheNextOne) {
  RunWorld(kRanks, {.transport = GetParam()}, [](Communicator& world) {
    for (int round = 0; round < Repetitions(60) && !::testing::Test::HasFailure(); ++round) {
      std::vector<float> weights(kCount, 1);
      absl::StatusOr<std::unique_ptr<Synchronizer>> made = Synchronizer::Create(
          world, {{"weight", DType::kF32, kCount, "40000", weights.data()}}, {.strategy = "async:sync_interval_ms=1"});
      ASSERT_TRUE(made.ok()) << made.status();
      for (int step = 0; step < 3 + world.rank(); ++step) {
        ASSERT_EQ((*made)->BeginForward(), absl::OkStatus());
        ASSERT_EQ((*made)->BeforeStep(), absl::OkStatus());
        ASSERT_EQ((*made)->AfterStep(), absl::OkStatus());
      }
      (*made)->Stop();
      ASSERT_EQ((*made)->Flush(), absl::OkStatus());
      made->reset();
      FillWhatIsFree(world, kCount * 4);
      // All ranks have the same weights and change nothing.
      ASSERT_EQ(std::count(weights.begin(), weights.end(), 1.0f), kCount) << "round " << round;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Transports, AsyncMadeAnew, ::testing::ValuesIn(WorldTransports()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace tutti
