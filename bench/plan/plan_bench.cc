// The time to write and to verify plans, and to choose a schedule.
#include <benchmark/benchmark.h>

#include <utility>
#include <vector>

#include "tutti/plan_builder.h"
#include "tutti/schedule.h"
#include "tutti/selector.h"
#include "tutti/verify.h"

namespace tutti {
namespace {

// Builds a part of a pipelined ring: a buffer is received, reduced and sent on, segment by segment, in about
// state.range(0) steps.
void BM_BuildRing(benchmark::State& state) {
  const std::int64_t segments = state.range(0) / 3;
  for (auto _ : state) {
    PlanBuilder b("bench", {.count = segments * 1024}, 0, 4, {.segment_bytes = 4096});
    const Ref scratch = b.Scratch(DType::kF32, segments * 1024);
    b.Recv(3, scratch);
    b.Reduce(b.out(), {scratch, b.in()}, ReduceOp::kSum);
    b.Send(1, b.out());
    absl::StatusOr<Plan> plan = std::move(b).Build();
    benchmark::DoNotOptimize(plan);
  }
  state.SetItemsProcessed(state.iterations() * segments * 3);
}
BENCHMARK(BM_BuildRing)->Arg(100)->Arg(10000)->Arg(100000)->Unit(benchmark::kMicrosecond);

// A hard case for the builder's interval map: again and again many overlapping reads, then a write of one element.
void BM_BuildManyReaders(benchmark::State& state) {
  const std::int64_t steps = state.range(0);
  for (auto _ : state) {
    PlanBuilder b("bench", {.count = 64}, 0, 4, {});
    for (std::int64_t i = 0; i < steps; ++i) {
      if (i % 64 == 63) b.Recv(1, b.out().Elements(i / 64 % 64, 1));
      if (i % 64 != 63) b.Send(1, b.out().Elements(i % 63, 2));
    }
    absl::StatusOr<Plan> plan = std::move(b).Build();
    benchmark::DoNotOptimize(plan);
  }
  state.SetItemsProcessed(state.iterations() * steps);
}
BENCHMARK(BM_BuildManyReaders)->Arg(100000)->Unit(benchmark::kMicrosecond);

// Verifies the plans of all ranks of a ring all-reduce, for worlds of different sizes.
void BM_VerifyRing(benchmark::State& state) {
  const int size = static_cast<int>(state.range(0));
  std::vector<Plan> plans;
  std::size_t steps = 0;
  for (Rank rank = 0; rank < size; ++rank) {
    plans.push_back(*BuildPlan(**FindSchedule(Collective::kAllReduce, "ring"), {.count = 1 << 20}, rank, size, {}));
    steps += plans.back().steps.size();
  }
  for (auto _ : state) {
    const absl::Status status = Verify(plans);
    if (!status.ok()) state.SkipWithError(status.ToString().c_str());
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(steps));
}
BENCHMARK(BM_VerifyRing)->Arg(4)->Arg(16)->Arg(64)->Unit(benchmark::kMicrosecond);

// The time of a selection, as in the first call of a size: every schedule of all_reduce is predicted. Links: 0 mapped
// memory, 1 messages inside a node, 2 nodes of 8 ranks.
void BM_SelectAllReduce(benchmark::State& state) {
  const int size = static_cast<int>(state.range(0));
  PlanOptions options{.peers_mapped = state.range(2) == 0};
  for (Rank rank = 0; rank < size && state.range(2) == 2; ++rank) options.nodes.push_back(rank / 8);
  for (auto _ : state) {
    const absl::StatusOr<Selection> selection = SelectSchedule({.count = state.range(1) / 4}, size, options);
    if (!selection.ok()) state.SkipWithError(selection.status().ToString().c_str());
  }
}
BENCHMARK(BM_SelectAllReduce)
    ->ArgNames({"ranks", "bytes", "links"})
    ->ArgsProduct({{2, 8, 16, 64, 1024, 4096}, {1 << 10, 64 << 20}, {0, 1, 2}})
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace tutti
