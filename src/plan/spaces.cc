#include "plan/spaces.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace tutti {
namespace {

// The place of an input or output of `count` elements in kOut: this rank's block if the `other` is larger, else all of
// it.
Ref PlaceOf(const CollectiveSpec& spec, std::int64_t count, std::int64_t other, Rank rank) {
  const bool block = spec.in_place && count > 0 && count < other;
  return {.space = Space::kOut,
          .dtype = spec.dtype,
          .offset = block ? rank * spec.count * SizeOf(spec.dtype) : 0,
          .bytes = count * SizeOf(spec.dtype)};
}

}  // namespace

Ref InputOf(const CollectiveSpec& spec, Rank rank, int size) {
  Ref in = PlaceOf(spec, InputCount(spec, rank, size), OutputCount(spec, rank, size), rank);
  if (!spec.in_place) in.space = Space::kIn;
  return in;
}

Ref OutputOf(const CollectiveSpec& spec, Rank rank, int size) {
  return PlaceOf(spec, OutputCount(spec, rank, size), InputCount(spec, rank, size), rank);
}

Ref BlockOf(const CollectiveSpec& spec, Rank to) {
  const auto block = spec.send_counts.begin() + to;
  const std::int64_t before = std::accumulate(spec.send_counts.begin(), block, std::int64_t{0});
  return {.space = Space::kIn,
          .dtype = spec.dtype,
          .offset = before * SizeOf(spec.dtype),
          .bytes = *block * SizeOf(spec.dtype)};
}

std::vector<Plan> WithBlocksLocated(absl::Span<const Plan> plans) {
  std::vector<Plan> located(plans.begin(), plans.end());
  for (Plan& plan : located) {
    for (Ref& ref : plan.refs) {
      // The form of references that no step uses is not checked; they stay as they are.
      if (ref.space != Space::kBlock || ref.owner < 0 || ref.owner >= plan.size) continue;
      ref.offset += BlockOf(plans[static_cast<std::size_t>(ref.owner)].spec, plan.rank).offset;
      ref.space = Space::kIn;
    }
  }
  return located;
}

std::int64_t SpaceBytes(const CollectiveSpec& spec, Space space, Rank rank, int size) {
  const std::int64_t in = InputCount(spec, rank, size) * SizeOf(spec.dtype);
  const std::int64_t out = OutputCount(spec, rank, size) * SizeOf(spec.dtype);
  if (spec.in_place) return space == Space::kOut ? std::max(in, out) : 0;
  return space == Space::kOut ? out : in;
}

}  // namespace tutti
