// all_to_all_v of counts that differ much from pair to pair: every schedule, verified and run on data.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/schedules/sequential_executor.h"
#include "tutti/schedule.h"
#include "tutti/verify.h"

namespace tutti {
namespace {

constexpr std::int64_t kSegment = 64;  // bytes

// A function for the elements that `from` sends to `to` among `size` ranks. `part`: the elements of a block that pass
// through scratch in one stage.
struct Counts {
  const char* name;
  std::int64_t (*of)(Rank from, Rank to, int size, std::int64_t part);
  int most_ranks = 9;
};
constexpr Counts kCounts[] = {
    {"nothing", [](Rank, Rank, int, std::int64_t) -> std::int64_t { return 0; }},
    {"one_element", [](Rank, Rank, int, std::int64_t) -> std::int64_t { return 1; }},
    {"one_block",
     [](Rank from, Rank to, int size, std::int64_t part) { return from == 0 && to == size - 1 ? 5 * part + 1 : 0; }},
    {"one_rank_without_any",
     [](Rank from, Rank to, int, std::int64_t part) { return from == 1 || to == 1 ? 0 : 2 * part + from; }},
    {"one_rank_that_only_sends", [](Rank, Rank to, int, std::int64_t part) { return to == 0 ? 0 : 3 * part - to; }},
    {"one_rank_that_only_receives",
     [](Rank from, Rank, int size, std::int64_t part) { return from == size - 1 ? 0 : 3 * part + from; }},
    {"to_the_next_rank",
     [](Rank from, Rank to, int size, std::int64_t part) { return (from + 1) % size == to ? from * part + 1 : 0; }},
    {"whole_stages", [](Rank from, Rank to, int, std::int64_t part) { return (from + 2 * to) % 4 * part; }},
    {"from_none_to_twelve_stages",
     [](Rank from, Rank to, int, std::int64_t part) {
       const std::int64_t i = (5 * from + 3 * to) % 7;
       return i * i * part / 3;
     }},
    {"one_block_beyond_all_stages",
     [](Rank from, Rank to, int, std::int64_t part) { return from == 1 && to == 0 ? 256 * part + 77 : from + to; }, 4},
    {"own_blocks_beyond_all_stages",
     [](Rank from, Rank to, int, std::int64_t part) { return from == to ? 256 * part + 77 : from + to; }},
};

std::byte ByteOf(Rank from, Rank to, std::int64_t i) { return static_cast<std::byte>(31 * from + 17 * to + 7 * i); }

void Exchange(const Schedule& schedule, const Counts& counts, DType dtype, int size) {
  SCOPED_TRACE(absl::StrCat(counts.name, " of ", Name(dtype), " on ", size, " ranks"));
  const std::int64_t width = SizeOf(dtype);
  const std::int64_t line = 64 / width;
  const std::int64_t part = (std::max(2 * kSegment / width / size, line) + line - 1) / line * line;
  const auto count = [&](Rank from, Rank to) { return counts.of(from, to, size, part); };
  std::vector<Plan> plans;
  std::vector<Bytes> ins;
  std::vector<Bytes> outs;
  std::vector<Bytes> expected;
  for (Rank rank = 0; rank < size; ++rank) {
    CollectiveSpec spec = {.collective = Collective::kAllToAllV, .dtype = dtype};
    Bytes in;
    Bytes out;
    for (Rank peer = 0; peer < size; ++peer) {
      spec.send_counts.push_back(count(rank, peer));
      spec.recv_counts.push_back(count(peer, rank));
      for (std::int64_t i = 0; i < count(rank, peer) * width; ++i) in.push_back(ByteOf(rank, peer, i));
      for (std::int64_t i = 0; i < count(peer, rank) * width; ++i) out.push_back(ByteOf(peer, rank, i));
    }
    absl::StatusOr<Plan> plan =
        BuildPlan(schedule, spec, rank, size, {.segment_bytes = kSegment, .peers_mapped = true});
    ASSERT_TRUE(plan.ok()) << plan.status();
    plans.push_back(*std::move(plan));
    ins.push_back(std::move(in));
    outs.emplace_back(out.size(), kGarbage);
    expected.push_back(std::move(out));
  }
  ASSERT_EQ(Verify(plans), absl::OkStatus());
  for (const auto order : {SequentialExecutor::Order::kFirstToLast, SequentialExecutor::Order::kLastToFirst}) {
    SequentialExecutor executor(plans, ins, outs, order);
    ASSERT_EQ(executor.Run(), "");
    for (Rank rank = 0; rank < size; ++rank) ASSERT_EQ(executor.out(rank), expected[rank]) << "rank " << rank;
  }
}

class AllToAllV : public testing::TestWithParam<const char*> {};

TEST_P(AllToAllV, ServesCountsThatDifferFromPairToPair) {
  const Schedule& schedule = **FindSchedule(Collective::kAllToAllV, GetParam());
  for (const Counts& counts : kCounts) {
    for (int size = 1; size <= counts.most_ranks; ++size) {
      Exchange(schedule, counts, DType::kU8, size);
      if (HasFatalFailure()) return;
    }
    for (const DType dtype : {DType::kF32, DType::kC128}) Exchange(schedule, counts, dtype, 4);
  }
}

INSTANTIATE_TEST_SUITE_P(Schedules, AllToAllV, testing::Values("direct", "pairwise", "staged"),
                         [](const auto& schedule) { return std::string(schedule.param); });

// Peers find their parts of a slot without knowing the counts of the slot's rank, and all ranks signal. A call of short
// blocks, of up to 256 bytes, needs no scratch but that of its lane.
TEST(AllToAllVStaged, HasTheSameSlotsAndASignalWhateverTheCounts) {
  const Schedule& schedule = **FindSchedule(Collective::kAllToAllV, "staged");
  for (const std::int64_t count : {0, 1, 64, 65, 10'000'000}) {
    CollectiveSpec spec = {.collective = Collective::kAllToAllV};
    spec.send_counts = {count, 0, 0};
    spec.recv_counts = {count, 0, count};
    const absl::StatusOr<Plan> plan = BuildPlan(schedule, spec, 0, 3, {.peers_mapped = true});
    ASSERT_TRUE(plan.ok()) << plan.status();
    // A part of the long slots has whole cache lines: a third of two segments.
    EXPECT_EQ(plan->scratch_bytes, 3 * 256 + (count > 64 ? 2 * 3 * 174'784 : 0));
    EXPECT_GT(std::count_if(plan->steps.begin(), plan->steps.end(),
                            [](const Step& step) { return step.kind == StepKind::kSignal; }),
              0);
  }
}

}  // namespace
}  // namespace tutti
