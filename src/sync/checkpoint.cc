#include "sync/checkpoint.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sync/byte_stream.h"
#include "sync/hash.h"

namespace tutti {
namespace {

constexpr std::uint32_t kMagic = 0x53545554;  // "TUTS"
constexpr std::uint32_t kVersion = 4;

struct SavedState {
  std::string name;
  StateKind kind;
  DType dtype;
  std::int64_t first_element;
  std::int64_t divisor;
  absl::string_view bytes;
};

struct SavedBucket {
  std::int64_t count = 0;  // elements
  std::vector<SavedState> states;
};

struct Checkpoint {
  CheckpointOwner owner;
  std::vector<SavedBucket> buckets;
};

absl::StatusOr<Checkpoint> Parse(const std::string& bytes, std::size_t index) {
  const std::size_t size = bytes.size() - std::min(bytes.size(), sizeof(std::uint64_t));
  const absl::string_view content = absl::string_view(bytes).substr(0, size);
  ByteReader reader(content);
  Checkpoint checkpoint;
  if (reader.Number() != kMagic || reader.Number() != kVersion) {
    return absl::InvalidArgumentError(
        absl::StrCat("states[", index, "] is no state of a synchronizer, or one of another version of Tutti"));
  }
  if (ByteReader(absl::string_view(bytes).substr(size)).Number() != static_cast<std::int64_t>(Hash(content))) {
    return absl::InvalidArgumentError(
        absl::StrCat("states[", index, "] is damaged: its ", bytes.size(), " bytes are not those that were saved"));
  }
  bool in_range = true;
  const auto number = [&](std::int64_t least, std::int64_t most) {
    const std::int64_t value = reader.Number();
    in_range &= least <= value && value <= most;
    return value;
  };
  constexpr std::int64_t kMostRanks = std::numeric_limits<Rank>::max();
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  checkpoint.owner.strategy = std::string(reader.Bytes());
  checkpoint.owner.rank = static_cast<Rank>(number(0, kMostRanks));
  checkpoint.owner.size = static_cast<int>(number(1, kMostRanks));
  checkpoint.owner.step = number(0, kMost);
  checkpoint.owner.loss_scale = std::bit_cast<double>(reader.Number());
  in_range = in_range && IsLossScale(checkpoint.owner.loss_scale);
  const std::int64_t participants = number(1, kMostRanks);
  for (std::int64_t i = 0; i < participants && in_range && !reader.overrun(); ++i) {
    checkpoint.owner.participants.push_back(static_cast<Rank>(number(0, checkpoint.owner.size - 1)));
  }
  const std::int64_t buckets = number(0, kMost);
  for (std::int64_t b = 0; b < buckets && !reader.overrun(); ++b) {
    SavedBucket& bucket = checkpoint.buckets.emplace_back();
    bucket.count = number(0, kMost);
    const std::int64_t states = number(0, kMost);
    for (std::int64_t s = 0; s < states && !reader.overrun(); ++s) {
      SavedState& state = bucket.states.emplace_back();
      state.name = std::string(reader.Bytes());
      state.kind = static_cast<StateKind>(number(0, static_cast<std::int64_t>(StateKind::kReplica)));
      state.dtype = static_cast<DType>(number(0, static_cast<std::int64_t>(kAllDTypes.size()) - 1));
      state.first_element = number(0, bucket.count);
      state.divisor = number(1, kMostRanks);
      state.bytes = reader.Bytes();
      const auto length = static_cast<std::int64_t>(state.bytes.size());
      in_range = in_range && (state.divisor == 1 || state.divisor == checkpoint.owner.size) &&
                 length % SizeOf(state.dtype) == 0 &&
                 length / SizeOf(state.dtype) <= bucket.count - state.first_element;
      if (!in_range) break;
    }
    if (!in_range) break;
  }
  if (!in_range) {
    return absl::InvalidArgumentError(absl::StrCat("states[", index, "] is damaged: a number in it is out of range"));
  }
  if (reader.complete()) return checkpoint;
  return absl::InvalidArgumentError(
      absl::StrCat("states[", index, "] is damaged: its ", bytes.size(), " bytes are too few or too many"));
}

absl::StatusOr<std::vector<Checkpoint>> ParseAll(absl::Span<const std::string> checkpoints) {
  std::vector<Checkpoint> parsed;
  for (std::size_t i = 0; i < checkpoints.size(); ++i) {
    absl::StatusOr<Checkpoint> checkpoint = Parse(checkpoints[i], i);
    if (!checkpoint.ok()) return checkpoint.status();
    parsed.push_back(*std::move(checkpoint));
  }
  return parsed;
}

absl::Status CheckOwners(const std::vector<Checkpoint>& checkpoints, const CheckpointOwner& owner,
                         std::size_t num_buckets) {
  if (checkpoints.empty()) return absl::InvalidArgumentError("states is empty; it needs at least this rank's");
  const CheckpointOwner& first = checkpoints[0].owner;
  const int size = first.size;
  const bool own = checkpoints.size() == 1 && SameWorld(first, owner) && first.rank == owner.rank;
  if (!own && checkpoints.size() != static_cast<std::size_t>(size)) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", owner.rank, " of ", owner.size, ": states has ",
                                                   checkpoints.size(), " entries, states[0] of rank ", first.rank,
                                                   " of ", size, "; needed are this rank's in a world of ", owner.size,
                                                   " with the same nodes, or those of all ", size, " ranks"));
  }
  for (std::size_t i = 0; i < checkpoints.size(); ++i) {
    const CheckpointOwner& saved = checkpoints[i].owner;
    const auto differs = [&](absl::string_view field, const auto& is, const auto& expected) {
      return absl::InvalidArgumentError(absl::StrCat("states[", i, "]: ", field, " is ", is, ", expected ", expected));
    };
    if (saved.strategy != owner.strategy) return differs("strategy", saved.strategy, owner.strategy);
    if (saved.size != size) return differs("size", saved.size, size);
    if (saved.participants != first.participants) {
      return differs("participants", absl::StrJoin(saved.participants, " "), absl::StrJoin(first.participants, " "));
    }
    if (!own && saved.rank != static_cast<Rank>(i)) return differs("rank", saved.rank, i);
    if (saved.step != first.step && !owner.steps_alone) return differs("step", saved.step, first.step);
    if (saved.loss_scale != first.loss_scale) return differs("loss scale", saved.loss_scale, first.loss_scale);
    if (checkpoints[i].buckets.size() != num_buckets) {
      return differs("number of buckets", checkpoints[i].buckets.size(), num_buckets);
    }
  }
  return absl::OkStatus();
}

// The saved state with the name, kind and dtype of `state`; nullptr when there is none.
const SavedState* Find(const std::vector<SavedState>& saved, const StateRange& state) {
  for (const SavedState& candidate : saved) {
    if (candidate.name == state.name && candidate.kind == state.kind && candidate.dtype == state.range.dtype) {
      return &candidate;
    }
  }
  return nullptr;
}

// Whether `saved` can become `state`: of the rank that saved it (`own`), to the byte; of a rank of another world, a
// part of it. In another world a saved state may be missing: replicas start anew, and a bucket too small to be encoded
// had lost nothing.
bool Fits(const SavedState* saved, const StateRange& state, bool own) {
  if (!own) return saved == nullptr || state.kind == StateKind::kReplica || state.range.dtype == DType::kF32;
  return saved != nullptr && static_cast<std::int64_t>(saved->bytes.size()) == state.range.bytes &&
         saved->first_element == state.first_element && saved->divisor == state.divisor;
}

absl::Status CheckStates(const Checkpoint& checkpoint, absl::Span<const ExchangeBucket> buckets, bool own) {
  const auto misfit = [&](std::size_t b, const auto&... what) {
    return absl::InvalidArgumentError(absl::StrCat("state of rank ", checkpoint.owner.rank, ": bucket ", b, what...,
                                                   "; were the parameters or bucket sizes other ones?"));
  };
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    const SavedBucket& saved = checkpoint.buckets[b];
    if (saved.count != buckets[b].count()) {
      return misfit(b, " has ", saved.count, " elements, expected ", buckets[b].count());
    }
    for (const StateRange& state : buckets[b].states()) {
      if (Fits(Find(saved.states, state), state, own)) continue;
      return misfit(b, " has no ", state.name, " of ", state.range.bytes, " bytes");
    }
  }
  return absl::OkStatus();
}

// Returns the owner of all checkpoints, if they fit `buckets`.
absl::StatusOr<CheckpointOwner> CheckAll(const std::vector<Checkpoint>& checkpoints, const CheckpointOwner& owner,
                                         absl::Span<const ExchangeBucket> buckets) {
  if (absl::Status status = CheckOwners(checkpoints, owner, buckets.size()); !status.ok()) return status;
  CheckpointOwner saved = checkpoints[0].owner;
  for (const Checkpoint& checkpoint : checkpoints) {
    saved.step = std::min(saved.step, checkpoint.owner.step);
    // Ranges depend on the rank: in the same world only this rank's own must fit to the byte.
    const bool own = SameWorld(saved, owner) && checkpoint.owner.rank == owner.rank;
    if (absl::Status status = CheckStates(checkpoint, buckets, own); !status.ok()) return status;
  }
  return saved;
}

// The rank of this world that takes over the residual of `rank` of the saved world.
Rank HeirOf(Rank rank, const CheckpointOwner& former, const CheckpointOwner& owner) {
  const auto place = std::find(former.participants.begin(), former.participants.end(), rank);
  const auto index = static_cast<std::size_t>(place - former.participants.begin());
  return owner.participants[index % owner.participants.size()];
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
    const SavedState* saved = Find(checkpoint.buckets[b].states, state);
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

std::string WriteCheckpoint(const CheckpointOwner& owner, absl::Span<const ExchangeBucket> buckets) {
  ByteWriter writer;
  writer.Number(kMagic);
  writer.Number(kVersion);
  writer.Bytes(owner.strategy.data(), static_cast<std::int64_t>(owner.strategy.size()));
  writer.Number(owner.rank);
  writer.Number(owner.size);
  writer.Number(owner.step);
  writer.Number(std::bit_cast<std::int64_t>(owner.loss_scale));
  writer.Number(static_cast<std::int64_t>(owner.participants.size()));
  for (const Rank rank : owner.participants) writer.Number(rank);
  writer.Number(static_cast<std::int64_t>(buckets.size()));
  for (const ExchangeBucket& bucket : buckets) {
    writer.Number(bucket.count());
    writer.Number(static_cast<std::int64_t>(bucket.states().size()));
    for (const StateRange& state : bucket.states()) {
      writer.Bytes(state.name.data(), static_cast<std::int64_t>(state.name.size()));
      writer.Number(static_cast<std::int64_t>(state.kind));
      writer.Number(static_cast<std::int64_t>(state.range.dtype));
      writer.Number(state.first_element);
      writer.Number(state.divisor);
      writer.Bytes(bucket.AddressOf(state), state.range.bytes);
    }
  }
  writer.Number(static_cast<std::int64_t>(Hash(writer.bytes())));
  return writer.Take();
}

absl::StatusOr<CheckpointOwner> ReadCheckpoint(
    absl::Span<const std::string> checkpoints, const CheckpointOwner& owner, absl::Span<ExchangeBucket> buckets,
    absl::FunctionRef<absl::Status(const absl::StatusOr<CheckpointOwner>& saved)> agree) {
  const absl::StatusOr<std::vector<Checkpoint>> parsed = ParseAll(checkpoints);
  absl::StatusOr<CheckpointOwner> saved =
      parsed.ok() ? CheckAll(*parsed, owner, buckets) : absl::StatusOr<CheckpointOwner>(parsed.status());
  if (absl::Status agreed = agree(saved); !agreed.ok()) return agreed;
  if (!saved.ok()) return saved;
  const bool same_world = SameWorld(*saved, owner);
  const auto own = std::find_if(parsed->begin(), parsed->end(),
                                [&](const Checkpoint& checkpoint) { return checkpoint.owner.rank == owner.rank; });
  for (std::size_t b = 0; b < buckets.size(); ++b) {
    for (const StateRange& state : buckets[b].states()) {
      if (state.range.bytes == 0) continue;
      std::byte* const memory = buckets[b].AddressOf(state);
      if (same_world) {
        std::memcpy(memory, Find(own->buckets[b].states, state)->bytes.data(),
                    static_cast<std::size_t>(state.range.bytes));
      } else if (state.kind == StateKind::kResidual) {
        ShareOut(*parsed, b, owner, state, buckets[b].count(), reinterpret_cast<float*>(memory));
      }
    }
  }
  return saved;
}

}  // namespace tutti
