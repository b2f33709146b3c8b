// The time that the engine itself takes for a step and for a call, in a world of one rank, which waits for no peer.
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

constexpr std::int64_t kLine = 16;  // elements of a cache line

// `steps` copies of one cache line each from input to output: in a chain, where every step waits for the one before, or
// all independent.
CollectiveSpec SpecOfCopies(int steps, bool chain) { return {.count = chain ? kLine : kLine * steps}; }

absl::StatusOr<Plan> Copies(int steps, bool chain) {
  PlanBuilder builder("copies", SpecOfCopies(steps, chain), 0, 1, {});
  const Ref lines = builder.Scratch(DType::kF32, kLine * steps);
  for (int i = 0; i < steps; ++i) {
    if (chain) {
      builder.Copy(i == steps - 1 ? builder.out() : lines.Elements(kLine * i, kLine),
                   i == 0 ? builder.in() : lines.Elements(kLine * (i - 1), kLine));
    } else {
      builder.Copy(builder.out().Elements(kLine * i, kLine), builder.in().Elements(kLine * i, kLine));
    }
  }
  return std::move(builder).Build();
}

void BM_Step(benchmark::State& state) {
  const std::unique_ptr<Communicator> comm = WorldOfOne();
  const int steps = static_cast<int>(state.range(0));
  const bool chain = state.range(1) != 0;
  const auto count = static_cast<std::size_t>(SpecOfCopies(steps, chain).count);
  const std::vector<float> in(count);
  std::vector<float> out(count);
  BoundPlan bound = *comm->Bind([&](Rank) { return Copies(steps, chain); }, {.in = in.data(), .out = out.data()});
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
