#include "sync/checkpoint_format.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sync/byte_stream.h"
#include "sync/loss_scale.h"
#include "sync/sealed_bytes.h"

namespace tutti {
namespace {

constexpr std::uint32_t kMagic = 0x53545554;  // "TUTS"
constexpr std::uint32_t kVersion = 4;

absl::StatusOr<Checkpoint> ParseOne(const std::string& bytes, std::size_t index) {
  ByteReader reader(ContentOf(bytes));
  Checkpoint checkpoint;
  if (reader.Number() != kMagic || reader.Number() != kVersion) {
    return absl::InvalidArgumentError(
        absl::StrCat("states[", index, "] was not saved by a Synchronizer or BucketExchange of this version of Tutti"));
  }
  if (!IsWhole(bytes)) {
    return absl::InvalidArgumentError(
        absl::StrCat("states[", index, "] is damaged: its ", bytes.size(), " bytes are not those that were saved"));
  }
  bool in_range = true;
  const auto number = [&](std::int64_t least, std::int64_t most) {
    const std::int64_t value = reader.Number();
    in_range &= least <= value && value <= most;
    return value;
  };
  constexpr std::int64_t kMaxRanks = std::numeric_limits<Rank>::max();
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  checkpoint.owner.strategy = std::string(reader.Bytes());
  checkpoint.owner.rank = static_cast<Rank>(number(0, kMaxRanks));
  checkpoint.owner.size = static_cast<int>(number(1, kMaxRanks));
  checkpoint.owner.step = number(0, kMax);
  checkpoint.owner.loss_scale = std::bit_cast<double>(reader.Number());
  in_range = in_range && IsLossScale(checkpoint.owner.loss_scale);
  const std::int64_t participants = number(1, kMaxRanks);
  for (std::int64_t i = 0; i < participants && in_range && !reader.overrun(); ++i) {
    checkpoint.owner.participants.push_back(static_cast<Rank>(number(0, checkpoint.owner.size - 1)));
  }
  const std::int64_t buckets = number(0, kMax);
  for (std::int64_t b = 0; b < buckets && !reader.overrun(); ++b) {
    CheckpointBucket& bucket = checkpoint.buckets.emplace_back();
    bucket.count = number(0, kMax);
    const std::int64_t states = number(0, kMax);
    for (std::int64_t s = 0; s < states && !reader.overrun(); ++s) {
      CheckpointState& state = bucket.states.emplace_back();
      state.name = std::string(reader.Bytes());
      state.kind = static_cast<StateKind>(number(0, static_cast<std::int64_t>(StateKind::kReplica)));
      state.dtype = static_cast<DType>(number(0, static_cast<std::int64_t>(kAllDTypes.size()) - 1));
      state.first_element = number(0, bucket.count);
      state.divisor = number(1, kMaxRanks);
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

// Whether the rank that saved had states if any rank had: ranks that follow a leader have none.
bool Exchanged(const CheckpointOwner& owner) {
  return std::find(owner.participants.begin(), owner.participants.end(), owner.rank) != owner.participants.end();
}

}  // namespace

std::string Write(const Checkpoint& checkpoint) {
  const CheckpointOwner& owner = checkpoint.owner;
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
  writer.Number(static_cast<std::int64_t>(checkpoint.buckets.size()));
  for (const CheckpointBucket& bucket : checkpoint.buckets) {
    writer.Number(bucket.count);
    writer.Number(static_cast<std::int64_t>(bucket.states.size()));
    for (const CheckpointState& state : bucket.states) {
      writer.Bytes(state.name.data(), static_cast<std::int64_t>(state.name.size()));
      writer.Number(static_cast<std::int64_t>(state.kind));
      writer.Number(static_cast<std::int64_t>(state.dtype));
      writer.Number(state.first_element);
      writer.Number(state.divisor);
      writer.Bytes(state.bytes.data(), static_cast<std::int64_t>(state.bytes.size()));
    }
  }
  return Seal(writer.Take());
}

absl::StatusOr<std::vector<Checkpoint>> Parse(absl::Span<const std::string> states) {
  std::vector<Checkpoint> parsed;
  for (std::size_t i = 0; i < states.size(); ++i) {
    absl::StatusOr<Checkpoint> checkpoint = ParseOne(states[i], i);
    if (!checkpoint.ok()) return checkpoint.status();
    parsed.push_back(*std::move(checkpoint));
  }
  return parsed;
}

bool IsStateless(const Checkpoint& checkpoint) {
  return std::all_of(checkpoint.buckets.begin(), checkpoint.buckets.end(),
                     [](const CheckpointBucket& bucket) { return bucket.states.empty(); });
}

absl::Status CheckOwners(const std::vector<Checkpoint>& checkpoints, const CheckpointOwner& owner, bool stateless) {
  if (checkpoints.empty())
    return absl::InvalidArgumentError("states is empty, must hold at least the state of this rank");
  const CheckpointOwner& first = checkpoints[0].owner;
  const int size = first.size;
  const bool enough = checkpoints.size() == 1 && ((SameWorld(first, owner) && first.rank == owner.rank) ||
                                                  (stateless && IsStateless(checkpoints[0]) && Exchanged(first)));
  if (!enough && checkpoints.size() != static_cast<std::size_t>(size)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "rank ", owner.rank, " of ", owner.size, ": states has ", checkpoints.size(), " entries, states[0] of rank ",
        first.rank, " of ", size, "; states must hold the state of rank ", owner.rank, " alone, saved in a world of ",
        owner.size, " ranks with the same nodes, or the states of all ", size,
        " ranks; or leave the states out (in Python: remove the key _extra_state), and the strategy starts anew"));
  }
  for (std::size_t i = 0; i < checkpoints.size(); ++i) {
    const CheckpointOwner& saved = checkpoints[i].owner;
    const auto differs = [&](absl::string_view field, const auto& is, const auto& expected) {
      return absl::InvalidArgumentError(absl::StrCat("states[", i, "]: ", field, " is ", is, ", expected ", expected));
    };
    if (saved.strategy != owner.strategy) {
      return differs("strategy", saved.strategy,
                     absl::StrCat(owner.strategy,
                                  "; to go on with another strategy, load weights that were saved after "
                                  "Flush, and leave the states out (docs/training.md)"));
    }
    if (saved.size != size) return differs("size", saved.size, size);
    if (saved.participants != first.participants) {
      return differs("participants", absl::StrJoin(saved.participants, " "), absl::StrJoin(first.participants, " "));
    }
    if (!enough && saved.rank != static_cast<Rank>(i)) return differs("rank", saved.rank, i);
    if (saved.step != first.step && !owner.steps_alone) return differs("step", saved.step, first.step);
    if (saved.loss_scale != first.loss_scale) return differs("loss scale", saved.loss_scale, first.loss_scale);
  }
  return absl::OkStatus();
}

CheckpointOwner OwnerOf(const std::vector<Checkpoint>& checkpoints) {
  CheckpointOwner owner = checkpoints[0].owner;
  for (const Checkpoint& checkpoint : checkpoints) owner.step = std::min(owner.step, checkpoint.owner.step);
  return owner;
}

Rank HeirOf(Rank rank, const CheckpointOwner& former, const CheckpointOwner& owner) {
  const auto place = std::find(former.participants.begin(), former.participants.end(), rank);
  const auto index = static_cast<std::size_t>(place - former.participants.begin());
  return owner.participants[index % owner.participants.size()];
}

}  // namespace tutti
