#include "bench/gpu/steps.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bench/gpu/series.h"
#include "tests/gpu/rank_memory.h"
#include "tutti/algorithm.h"

namespace tutti::gpu {

absl::Status MeasureSteps(CheckedRank& rank, const std::string& link) {
  const std::int64_t count = rank.device.is_fake ? 1 << 12 : 1 << 24;
  const int rounds = rank.device.is_fake ? 2 : 7;
  struct Measured {
    Measured(const RankDevice& device, std::string name, std::int64_t bytes)
        : series(std::move(name)), values(device, bytes) {}
    Series series;
    RankMemory values;
    BoundPlan plan;
  };
  constexpr std::pair<const char*, const char*> kStrategies[] = {
      {"fp32", "gradient_allreduce"}, {"bf16", "gradient_allreduce:codec=bf16"}, {"bytegrad", "bytegrad"}};
  std::vector<std::unique_ptr<Measured>> all;
  for (const auto& [name, strategy] : kStrategies) {
    all.push_back(std::make_unique<Measured>(rank.device, absl::StrCat("step_", name, "_", link), 4 * count));
    Measured& measured = *all.back();
    measured.values.Write(std::vector<std::byte>(static_cast<std::size_t>(4 * count)));
    absl::StatusOr<BoundPlan> bound =
        rank.comm.Bind(*ParseStrategy(strategy), DType::kF32, count, 0, {.out = measured.values.data()});
    if (!bound.ok()) return bound.status();
    measured.plan = *std::move(bound);
  }
  for (int round = -2; round < rounds; ++round) {
    for (const std::unique_ptr<Measured>& measured : all) {
      if (round == 0) measured->series.Clear();
      if (absl::Status status = rank.comm.Barrier().Wait(); !status.ok()) return status;
      const auto step = [&] { return measured->plan.Start().Wait(); };
      if (absl::Status status = measured->series.Time(step); !status.ok()) return status;
    }
  }
  for (const std::unique_ptr<Measured>& measured : all) rank.note(measured->series.Figure("ms", 1e3));
  return absl::OkStatus();
}

}  // namespace tutti::gpu
