#include "sync/checkpoint.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "sync/states_on_host.h"

namespace tutti {
namespace {

// The saved state with the name, kind and dtype of `state`; nullptr when there is none.
const CheckpointState* Find(const std::vector<CheckpointState>& saved, const StateRange& state) {
  for (const CheckpointState& candidate : saved) {
    if (candidate.name == state.name && candidate.kind == state.kind && candidate.dtype == state.range.dtype) {
      return &candidate;
    }
  }
  return nullptr;
}

// Whether `saved` can be loaded into `state`. With `own`, this rank saved the state in the same world, and the two must
// fit to the byte. Otherwise `state` takes over a part of the saved values, and `saved` may be missing: replicas start
// anew in another world, and a bucket too small to be encoded had lost nothing.
bool Fits(const CheckpointState* saved, const StateRange& state, bool own) {
  if (!own) return saved == nullptr || state.kind == StateKind::kReplica || state.range.dtype == DType::kF32;
  return saved != nullptr && static_cast<std::int64_t>(saved->bytes.size()) == state.range.bytes &&
         saved->first_element == state.first_element && saved->divisor == state.divisor;
}

bool AreStateless(absl::Span<const ExchangeBucket> buckets) {
  return std::all_of(buckets.begin(), buckets.end(),
                     [](const ExchangeBucket& bucket) { return bucket.states().empty(); });
}

absl::Status CheckStates(const Checkpoint& checkpoint, absl::Span<const ExchangeBucket> buckets, bool own) {
  const auto misfit = [&](const auto&... what) {
    return absl::InvalidArgumentError(
        absl::StrCat("state of rank ", checkpoint.owner.rank, ": ", what...,
                     "; the parameters and bucket sizes must be those of the saved state"));
  };
  if (IsStateless(checkpoint) && AreStateless(buckets)) return absl::OkStatus();
  if (checkpoint.buckets.size() != buckets.size()) {
    return misfit("number of buckets is ", checkpoint.buckets.size(), ", expected ", buckets.size());
  }
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    const CheckpointBucket& saved = checkpoint.buckets[b];
    if (saved.count != buckets[b].count()) {
      return misfit("bucket ", b, " has ", saved.count, " elements, expected ", buckets[b].count());
    }
    for (const StateRange& state : buckets[b].states()) {
      if (Fits(Find(saved.states, state), state, own)) continue;
      return misfit("bucket ", b, " has no ", state.name, " of ", state.range.bytes, " bytes");
    }
  }
  return absl::OkStatus();
}

// Returns the owner of all checkpoints, if they fit `buckets`.
absl::StatusOr<CheckpointOwner> CheckAll(const std::vector<Checkpoint>& checkpoints, const CheckpointOwner& owner,
                                         absl::Span<const ExchangeBucket> buckets) {
  if (absl::Status status = CheckOwners(checkpoints, owner, AreStateless(buckets)); !status.ok()) return status;
  CheckpointOwner saved = OwnerOf(checkpoints);
  for (const Checkpoint& checkpoint : checkpoints) {
    // Ranges depend on the rank: in the same world only this rank's own must fit to the byte.
    const bool own = SameWorld(saved, owner) && checkpoint.owner.rank == owner.rank;
    if (absl::Status status = CheckStates(checkpoint, buckets, own); !status.ok()) return status;
  }
  return saved;
}

// Gives this rank its share of the residuals of the saved world, of which every part goes to one rank of this world. A
// residual that covers the whole bucket on every rank moves to one heir as a whole; of residuals that are spread over
// the ranks, each rank takes what lies in its own range now. What the result is owed, value / divisor, stays the same:
// where ranks hold back parts of values that are averaged, residuals are scaled with the number of ranks.
void ShareOut(const std::vector<Checkpoint>& checkpoints, std::size_t b, const CheckpointOwner& owner,
              const StateRange& state, std::int64_t bucket_count, float* values) {
  const std::int64_t count = state.range.count();
  std::fill_n(values, count, 0.0f);
  for (const Checkpoint& checkpoint : checkpoints) {
    const CheckpointState* saved = Find(checkpoint.buckets[b].states, state);
    if (saved == nullptr) continue;
    const double share = static_cast<double>(state.divisor) / static_cast<double>(saved->divisor);
    const auto saved_count = static_cast<std::int64_t>(saved->bytes.size() / sizeof(float));
    const bool whole = saved_count == bucket_count && count == bucket_count;
    if (whole && HeirOf(checkpoint.owner.rank, checkpoint.owner, owner) != owner.rank) continue;
    const std::int64_t begin = std::max(state.first_element, saved->first_element);
    const std::int64_t end = std::min(state.first_element + count, saved->first_element + saved_count);
    for (std::int64_t e = begin; e < end; ++e) {
      float value;
      std::memcpy(&value, saved->bytes.data() + (e - saved->first_element) * 4, sizeof(value));
      values[e - state.first_element] += static_cast<float>(value * share);
    }
  }
}

}  // namespace

absl::StatusOr<std::string> WriteCheckpoint(const CheckpointOwner& owner, absl::Span<const ExchangeBucket> buckets) {
  Checkpoint checkpoint{owner, {}};
  std::vector<StatesOnHost> kept;  // until their bytes are written
  kept.reserve(buckets.size());
  for (const ExchangeBucket& bucket : buckets) {
    absl::StatusOr<StatesOnHost> states = StatesOnHost::Of(bucket);
    if (!states.ok()) return states.status();
    kept.push_back(*std::move(states));
    CheckpointBucket& saved = checkpoint.buckets.emplace_back(CheckpointBucket{bucket.count(), {}});
    for (const StateRange& state : bucket.states()) {
      saved.states.push_back({state.name, state.kind, state.range.dtype, state.first_element, state.divisor,
                              absl::string_view(reinterpret_cast<const char*>(kept.back().AddressOf(state)),
                                                static_cast<std::size_t>(state.range.bytes))});
    }
  }
  return Write(checkpoint);
}

absl::StatusOr<CheckpointOwner> ReadCheckpoint(
    absl::Span<const std::string> checkpoints, const CheckpointOwner& owner, absl::Span<ExchangeBucket> buckets,
    absl::FunctionRef<absl::Status(const absl::StatusOr<CheckpointOwner>& saved)> agree) {
  const absl::StatusOr<std::vector<Checkpoint>> parsed = Parse(checkpoints);
  absl::StatusOr<CheckpointOwner> saved =
      parsed.ok() ? CheckAll(*parsed, owner, buckets) : absl::StatusOr<CheckpointOwner>(parsed.status());
  if (absl::Status agreed = agree(saved); !agreed.ok()) return agreed;
  if (!saved.ok()) return saved;
  const bool same_world = SameWorld(*saved, owner);
  // Missing where a stateless checkpoint of another rank is loaded: then no bucket has a state either.
  const auto own = std::find_if(parsed->begin(), parsed->end(),
                                [&](const Checkpoint& checkpoint) { return checkpoint.owner.rank == owner.rank; });
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    absl::StatusOr<StatesOnHost> states = StatesOnHost::Of(buckets[b]);
    if (!states.ok()) return states.status();
    for (const StateRange& state : buckets[b].states()) {
      if (state.range.bytes == 0) continue;
      std::byte* const memory = states->AddressOf(state);
      if (same_world) {
        std::memcpy(memory, Find(own->buckets[b].states, state)->bytes.data(),
                    static_cast<std::size_t>(state.range.bytes));
      } else if (state.kind == StateKind::kResidual) {
        ShareOut(*parsed, b, owner, state, buckets[b].count(), reinterpret_cast<float*>(memory));
      }
    }
    if (absl::Status stored = states->Store(); !stored.ok()) return stored;
  }
  return saved;
}

}  // namespace tutti
