// What docs/fault_injection.md promises of a flipped bit: a codec's message whose header or codes make no sense is
// DataLoss; nothing notices a flipped bit of a number.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/faults/faulty_world.h"
#include "tests/faults/replicas.h"
#include "tests/harness/training.h"
#include "tutti/codec.h"

namespace tutti {
namespace {

TEST(Corruption, ABitOfANumberIsNotNoticed) {
  constexpr std::int64_t kCount = 100;
  std::vector<std::vector<float>> gathered(3);
  const FaultyWorld world = {
      .plan = {.faults = {{.kind = FaultKind::kCorrupt, .from = 1, .to = 2, .first = 0, .last = 0}}}};
  const Endings endings = RunWithFaults(world, [&](Communicator& comm) -> Outcome {
    const std::vector<float> mine(kCount, static_cast<float>(comm.rank() + 1));
    std::vector<float>& all = gathered[comm.rank()];
    all.resize(3 * kCount);
    const Schedule* const ring = FindSchedule(Collective::kAllGather, "ring").value();
    return {comm.AllGather(mine.data(), all.data(), kCount, DType::kF32, {.schedule = ring}).Wait(), ""};
  });
  ExpectNoHarm(endings);
  ASSERT_EQ(endings.events.size(), 1u);
  for (Rank rank = 0; rank < 3; ++rank) {
    int flipped = 0;
    for (std::size_t i = 0; i < gathered[rank].size(); ++i) {
      const auto should = static_cast<float>(i / kCount + 1);
      std::uint32_t is_bits = 0, should_bits = 0;
      std::memcpy(&is_bits, &gathered[rank][i], 4);
      std::memcpy(&should_bits, &should, 4);
      flipped += __builtin_popcount(is_bits ^ should_bits);
    }
    EXPECT_EQ(flipped, rank == 1 ? 0 : 1) << "rank " << rank;  // rank 2 has passed the flipped bit on to rank 0
  }
}

class CorruptionTest : public testing::TestWithParam<const Codec*> {};

TEST_P(CorruptionTest, ACodecsMessageIsDataLossOrDecodesToNumbers) {
  const std::string codec(GetParam()->name);
  const bool has_header = codec != "bf16" && codec != "fp16";
  const Training training = RandomTraining(absl::StrCat("bytegrad:codec=", codec), 3, 8);
  const std::int64_t first = MessagesUntilMade(training);
  int noticed = 0;
  for (const std::uint64_t seed : {1, 2, 3, 4}) {
    const FaultyWorld world = {.plan = {.seed = seed, .faults = {{.kind = FaultKind::kCorrupt, .first = first}}}};
    const Endings endings = RunWithFaults(world, [&](Communicator& comm) -> Outcome {
      absl::StatusOr<std::unique_ptr<Replica>> replica =
          Replica::Create(comm, training.model, training.strategy, training.initial);
      if (!replica.ok()) return {replica.status(), ""};
      for (const Ranks& gradients : training.gradients) {
        if (absl::Status status = (*replica)->Step(gradients[comm.rank()], training.lr); !status.ok()) {
          return {status, ""};
        }
      }
      return {};
    });
    EXPECT_FALSE(endings.events.empty());
    for (const Outcome& outcome : endings.ranks) {
      if (outcome.status.ok()) continue;
      ++noticed;
      EXPECT_TRUE(absl::IsDataLoss(outcome.status)) << outcome.status;
      EXPECT_TRUE(absl::StrContains(outcome.status.message(), codec)) << outcome.status;
    }
  }
  EXPECT_EQ(noticed > 0, has_header);
}

INSTANTIATE_TEST_SUITE_P(, CorruptionTest, testing::ValuesIn(AllCodecs().begin(), AllCodecs().end()),
                         [](const auto& codec) { return std::string(codec.param->name); });

}  // namespace
}  // namespace tutti
