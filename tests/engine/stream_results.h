// What plans give on streams or on the host, to be compared.
#ifndef TUTTI_TESTS_ENGINE_STREAM_RESULTS_H_
#define TUTTI_TESTS_ENGINE_STREAM_RESULTS_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "tests/engine/stream_world.h"
#include "tests/harness/calls.h"
#include "tests/harness/fake_device.h"
#include "tutti/algorithm.h"
#include "tutti/plan_builder.h"
#include "tutti/schedule.h"

namespace tutti {

// Plans on streams are not cut: a stream carries out one launch after the other anyway.
inline const PlanOptions kWhole = {.segment_bytes = std::int64_t{1} << 40};

inline std::vector<Plan> AllReducePlans(int size, std::int64_t count, const char* schedule = "ring") {
  const CollectiveSpec spec = {.collective = Collective::kAllReduce, .count = count, .in_place = true};
  std::vector<Plan> plans;
  for (Rank rank = 0; rank < size; ++rank) {
    plans.push_back(BuildPlan(**FindSchedule(Collective::kAllReduce, schedule), spec, rank, size, kWhole).value());
  }
  return plans;
}

inline std::vector<std::byte> Bytes(std::int64_t bytes, std::uint32_t seed) {
  std::vector<std::byte> values(static_cast<std::size_t>(bytes));
  for (std::size_t i = 0; i + 4 <= values.size(); i += 4) {
    const auto value = static_cast<float>((i * 2654435761u + seed * 40503u) % 997) - 500.0f;
    std::memcpy(&values[i], &value, 4);
  }
  return values;
}

// What a rank has after some runs of its plan: output and state.
using Results = std::vector<std::vector<std::byte>>;

inline Results ResultsOf(const std::vector<Plan>& plans, StreamWorld::On on, int runs) {
  StreamWorld world(static_cast<int>(plans.size()), on);
  const auto programs = world.Programs(plans);
  Results results(plans.size());
  world.OnEveryRank([&](StreamRank& rank) {
    const Plan& plan = plans[static_cast<std::size_t>(rank.rank)];
    const int device = world.DeviceOf(rank.rank);
    const FakeMemory in(device, plan.in_bytes);
    const FakeMemory out(device, plan.out_bytes);
    const FakeMemory state(device, plan.state_bytes);
    const auto seed = static_cast<std::uint32_t>(rank.rank) + 1;
    std::ranges::copy(Bytes(plan.in_bytes, seed), in.data());
    std::fill_n(state.data(), plan.state_bytes, std::byte{0});
    for (int run = 0; run < runs; ++run) {
      std::ranges::copy(Bytes(plan.out_bytes, seed + 7), out.data());
      Work work = rank.Start(programs[static_cast<std::size_t>(rank.rank)],
                             {.in = in.data(), .out = out.data(), .state = state.data()},
                             {.draw = static_cast<std::uint64_t>(run)});
      ASSERT_EQ(work.Wait(), absl::OkStatus());
    }
    std::vector<std::byte>& result = results[static_cast<std::size_t>(rank.rank)];
    result.assign(out.data(), out.data() + plan.out_bytes);
    result.insert(result.end(), state.data(), state.data() + plan.state_bytes);
  });
  return results;
}

// The next two functions expect of `on` what the host gives, byte for byte, and return how many plans were compared:
// of every schedule in worlds of `first_size` to 5 ranks, and of every algorithm with each of `options`.
inline int CompareSchedulesWithTheHost(StreamWorld::On on, int first_size) {
  int compared = 0;
  for (const Schedule* schedule : AllSchedules()) {
    if (IsPointToPoint(schedule->collective)) continue;
    for (int size = first_size; size <= 5; ++size) {
      const std::vector<WorldCall> calls = CallsOf(schedule->collective, DType::kF32, ReduceOp::kSum, 37, size);
      const absl::StatusOr<std::vector<Plan>> plans = PlansOf(*schedule, calls.front(), size, kWhole);
      if (!plans.ok()) continue;
      ++compared;
      EXPECT_EQ(ResultsOf(*plans, on, 2), ResultsOf(*plans, StreamWorld::On::kHost, 2))
          << schedule->name << " " << calls.front().text() << ", " << size << " ranks";
    }
  }
  return compared;
}

inline int CompareAlgorithmsWithTheHost(StreamWorld::On on, absl::Span<const char* const> options,
                                        absl::Span<const int> sizes) {
  int compared = 0;
  for (const Algorithm* algorithm : AllAlgorithms()) {
    for (const char* of_algorithm : options) {
      const absl::StatusOr<Strategy> strategy = ParseStrategy(absl::StrCat(algorithm->name, of_algorithm));
      if (!strategy.ok()) continue;
      for (const int size : sizes) {
        std::vector<Plan> plans;
        for (Rank rank = 0; rank < size; ++rank) {
          absl::StatusOr<Plan> plan = BuildPlan(*strategy, DType::kF32, 5000, rank, size, kWhole, 0);
          if (plan.ok()) plans.push_back(*std::move(plan));
        }
        if (static_cast<int>(plans.size()) < size) continue;
        ++compared;
        EXPECT_EQ(ResultsOf(plans, on, 3), ResultsOf(plans, StreamWorld::On::kHost, 3))
            << strategy->ToString() << ", " << size;
      }
    }
  }
  return compared;
}

}  // namespace tutti

#endif  // TUTTI_TESTS_ENGINE_STREAM_RESULTS_H_
