// Schedules over mapped scratch, for buffers that no peer can map: what peers are to read goes through two slots in
// scratch by turns, stage after stage, small enough that a slot is still in cache when peers read it.
//
// All ranks meet before the first stage, as they do at the beginning of the collective's plans for buffers that peers
// can map: until then both plans are the same, and then all ranks know which of the two serves their buffers.
#ifndef TUTTI_SCHEDULES_STAGES_H_
#define TUTTI_SCHEDULES_STAGES_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "tutti/plan_builder.h"
#include "tutti/rounding.h"
#include "tutti/schedules/mapped_peers.h"

namespace tutti::schedules {

// The most stages of a call of `size` ranks, each of which has steps with `peers` ranks in a stage: the steps of
// further stages would cost more time than the cache saves, and the plans of all ranks together would be too long to be
// verified.
inline std::int64_t MostStages(int size, int peers) { return std::clamp<std::int64_t>(50'000 / size / peers, 1, 256); }

// The elements of each of the `parts` parts of a slot: two segments together, or more where a part would be shorter
// than `least` elements or a cache line.
inline std::int64_t PartLength(const PlanBuilder& b, DType dtype, int parts, std::int64_t least = 0) {
  const std::int64_t line = kCacheLineBytes / SizeOf(dtype);
  const std::int64_t fits = 2 * b.options().segment_bytes / SizeOf(dtype) / parts;
  return RoundUp(std::max({fits, least, line}), line);
}

// The cut of `count` elements into stages of equal length, of which the last may be shorter.
class Stages {
 public:
  // A slot holds `parts` parts, each as long as a stage. Where parts of two segments together would make more than
  // MostStages stages, the parts are longer.
  Stages(const PlanBuilder& b, DType dtype, std::int64_t count, int parts) : count_(count) {
    const std::int64_t most = MostStages(b.size(), b.size());
    length_ = std::min(count, PartLength(b, dtype, parts, DivideRoundingUp(count, most)));
  }
  // Stages of `length` elements, at least 1; none where `count` is 0.
  Stages(std::int64_t count, std::int64_t length) : count_(count), length_(length) {}

  std::int64_t length() const { return length_; }
  std::int64_t number() const { return DivideRoundingUp(count_, length_); }
  Range operator[](std::int64_t stage) const {
    const std::int64_t begin = stage * length_;
    return {begin, std::min(length_, count_ - begin)};
  }
  // The stage's range of the block that starts at element `block` of `buffer`.
  Ref Of(std::int64_t stage, const Ref& buffer, std::int64_t block = 0) const {
    const Range range = (*this)[stage];
    return buffer.Elements(block + range.begin, range.count);
  }

 private:
  std::int64_t count_;
  std::int64_t length_;
};

// Two slots of `count` elements.
class TwoSlots {
 public:
  TwoSlots(PlanBuilder& b, DType dtype, std::int64_t count)
      : slots_{b.Scratch(dtype, count), b.Scratch(dtype, count)} {}
  const Ref& operator[](std::int64_t stage) const { return slots_[static_cast<std::size_t>(stage % 2)]; }

 private:
  std::array<Ref, 2> slots_;
};

// Two slots, each with `parts` parts; a part is as long as a stage.
class SlotsOfParts {
 public:
  SlotsOfParts(PlanBuilder& b, DType dtype, const Stages& stages, int parts)
      : stages_(stages), slots_(b, dtype, stages.length() * parts) {}
  Ref Part(std::int64_t stage, int part = 0) const {
    return slots_[stage].Elements(part * stages_.length(), stages_[stage].count);
  }
  std::vector<Ref> All() const { return {slots_[0], slots_[1]}; }

 private:
  const Stages stages_;
  const TwoSlots slots_;
};

// Copies the stage's range of the input block for each other rank to the part of the slot that belongs to that rank.
inline void FillForEveryPeer(PlanBuilder& b, const Stages& stages, const SlotsOfParts& slots, std::int64_t stage) {
  for (int i = 1; i < b.size(); ++i) {
    const Rank peer = (b.rank() + i) % b.size();
    b.Copy(slots.Part(stage, peer), stages.Of(stage, b.in(), peer * b.spec().count));
  }
}

// Copies part `part` of each other rank's slot to that rank's block of the output.
inline void ReadFromEveryPeer(PlanBuilder& b, const Stages& stages, const SlotsOfParts& slots, std::int64_t stage,
                              int part) {
  for (int i = 1; i < b.size(); ++i) {
    const Rank peer = (b.rank() + i) % b.size();
    b.Copy(stages.Of(stage, b.out(), peer * b.spec().count), slots.Part(stage, part).At(peer));
  }
}

// In each of `number` stages each rank fills its slot, ranks meet, and each rank reads the slots of its peers, one
// round of signals for each stage. A slot is filled again two stages later: by then the ranks that `meet` waits for
// have met again, and none of them reads the slot any more. A rank that `meet` does not wait for may still read its
// part.
inline void FillThenRead(std::int64_t number, absl::FunctionRef<void(std::int64_t)> fill,
                         absl::FunctionRef<void(std::int64_t)> meet, absl::FunctionRef<void(std::int64_t)> read) {
  fill(0);
  for (std::int64_t stage = 0; stage < number; ++stage) {
    meet(stage);
    if (stage + 1 < number) fill(stage + 1);
    read(stage);
  }
}

// FillThenRead where every rank meets all others before the first stage and in every stage.
inline void FillThenRead(PlanBuilder& b, const Stages& stages, absl::FunctionRef<void(std::int64_t)> fill,
                         absl::FunctionRef<void(std::int64_t)> read) {
  MeetAll(b);
  FillThenRead(
      stages.number(), fill, [&](std::int64_t) { MeetAll(b); }, read);
}

// In every stage rank r reduces chunk r (see CacheLineChunk) of all inputs and copies the result to a slot, and
// `reader`, or every rank where there is no `reader`, reads the reduced chunks of the others: one round of signals for
// each stage, and two before the first. A rank reads its own chunk of the inputs where it lies, not from a slot. The
// result is not reduced straight into the slot, whose lines a peer has read two stages before: a processor that stores
// to such lines one by one waits for the peer to give each of them up, but a long copy does not wait.
inline void ReduceInStages(PlanBuilder& b, std::optional<Rank> reader = std::nullopt) {
  const bool reads = reader.value_or(b.rank()) == b.rank();
  const bool is_read = reader != b.rank();
  const DType dtype = b.in().dtype;
  const Stages stages(b, dtype, b.in().count(), 1);
  const TwoSlots inputs(b, dtype, stages.length());
  const std::int64_t longest_chunk = CacheLineChunk(dtype, stages.length(), b.size(), 0).count;
  const TwoSlots results(b, dtype, longest_chunk);
  const Ref kept = b.Scratch(dtype, reads ? 0 : longest_chunk);  // the result of a rank that has no output
  const auto chunk_of = [&](std::int64_t stage, Rank rank) {
    return CacheLineChunk(dtype, stages[stage].count, b.size(), rank);
  };
  const auto place_of = [&](const Ref& buffer, std::int64_t stage, Range chunk) {
    return buffer.Elements(stages[stage].begin + chunk.begin, chunk.count);
  };
  const auto fill = [&](std::int64_t stage) {
    for (int i = 1; i < b.size(); ++i) {
      const Range chunk = chunk_of(stage, (b.rank() + i) % b.size());
      b.Copy(inputs[stage].Elements(chunk.begin, chunk.count), place_of(b.in(), stage, chunk));
    }
  };
  MeetAll(b);
  fill(0);
  MeetAll(b);
  for (std::int64_t stage = 0; stage < stages.number(); ++stage) {
    const Range own = chunk_of(stage, b.rank());
    std::vector<Ref> srcs = OnEveryRank(b, inputs[stage].Elements(own.begin, own.count));
    srcs[static_cast<std::size_t>(b.rank())] = place_of(b.in(), stage, own);
    const Ref result = reads ? place_of(b.out(), stage, own) : kept.Elements(0, own.count);
    b.Reduce(result, srcs, b.spec().op);
    if (is_read) b.Copy(results[stage].Elements(0, own.count), result);
    if (stage + 1 < stages.number()) fill(stage + 1);
    MeetAll(b);
    for (int i = 1; reads && i < b.size(); ++i) {
      const Rank owner = (b.rank() + i) % b.size();
      const Range chunk = chunk_of(stage, owner);
      b.Copy(place_of(b.out(), stage, chunk), results[stage].Elements(0, chunk.count).At(owner));
    }
  }
}

}  // namespace tutti::schedules

#endif  // TUTTI_SCHEDULES_STAGES_H_
