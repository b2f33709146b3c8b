// The engine's own cost: of a step, and of a call, in a world of one rank, which waits for no peer.
#include <benchmark/benchmark.h>

#include <memory>
#include <vector>

#include "tutti/bootstrap.h"
#include "tutti/communicator.h"
#include "tutti/plan_builder.h"

namespace tutti {
namespace {

std::unique_ptr<Communicator> WorldOfOne() {
  Bootstrap bootstrap;
  bootstrap.store = MakeMemoryStore();
  absl::StatusOr<std::unique_ptr<Transport>> transport = MakeInprocTransport(MakeInprocHub(1), {});
  return *Communicator::Create(bootstrap, *std::move(transport));
}

// A plan of `steps` copies of one cache line each, in a chain (every step waits for the one before) or all independent.
Plan Copies(int steps, bool chain) {
  PlanBuilder builder("copies", {.count = 1, .in_place = true}, 0, 1, {});
  const Ref lines = builder.Scratch(DType::kF32, 16 * (2 * std::int64_t{steps} + 1));
  for (int i = 0; i < steps; ++i) {
    const std::int64_t from = chain ? 16 * i : 32 * i;
    builder.Copy(lines.Elements(from + 16, 1), lines.Elements(from, 1));
  }
  return *std::move(builder).Build();
}

void BM_Step(benchmark::State& state) {
  const std::unique_ptr<Communicator> comm = WorldOfOne();
  const int steps = static_cast<int>(state.range(0));
  float io = 0;
  BoundPlan bound = *comm->Bind(Copies(steps, state.range(1) != 0), {.out = &io});
  for (auto _ : state) benchmark::DoNotOptimize(bound.Start({.caller_drives = true}).Wait().ok());
  state.counters["ns_per_step"] =
      benchmark::Counter(static_cast<double>(steps) * static_cast<double>(state.iterations()),
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}
BENCHMARK(BM_Step)->ArgNames({"steps", "chain"})->ArgsProduct({{1, 100, 10'000}, {0, 1}});

void BM_CallOfCachedPlan(benchmark::State& state) {
  const std::unique_ptr<Communicator> comm = WorldOfOne();
  float io = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        comm->AllReduce(&io, &io, 1, DType::kF32, ReduceOp::kSum, {.caller_drives = true}).Wait().ok());
  }
}
BENCHMARK(BM_CallOfCachedPlan);

}  // namespace
}  // namespace tutti
