// The coder of `topk`: the elements of largest magnitude of a block (select_largest.h), then their indices.
#ifndef TUTTI_KERNELS_TOPK_CODER_H_
#define TUTTI_KERNELS_TOPK_CODER_H_

#include <bit>
#include <cstdint>

#include "kernels/message_layout.h"
#include "kernels/select_largest.h"
#include "kernels/team.h"
#include "kernels/value_range.h"

namespace tutti::kernels {

class TopKCoder {
 public:
  static constexpr bool kAlone = false;
  static constexpr bool kOnePass = false;
  struct Scratch {
    std::uint64_t bins[kMaxBins];  // how many values of the block fall into each bin of a round
    std::uint64_t ties;
    std::uint32_t bin;
  };

  template <class Team>
  TUTTI_HOST_DEVICE static void Encode(const Team& team, Scratch& scratch, const MessageLayout& layout,
                                       const BlockPlace<std::uint8_t>& place, const ValueSource& values,
                                       std::uint64_t /*draw*/) {
    const std::int64_t kept = KeptOf(layout, place.index);
    const std::int64_t index_bytes = IndexBytes(place.elements);
    std::uint8_t* const indices = place.code + 4 * kept;
    std::uint32_t least = 0;  // the magnitude of the smallest selected element
    std::uint64_t ties = static_cast<std::uint64_t>(kept);
    if (!FindLargest(team, scratch, values, place.elements, least, ties)) {
      for (std::int64_t k = team.rank(); k < kept; k += team.size()) {
        Put(std::bit_cast<float>(0x7FC00000u), place.code + 4 * k);
        PutIndex(k, index_bytes, indices + k * index_bytes);
      }
      return;
    }
    // The numbers of larger values and of values that equal the least, in front of the tile: one in each half.
    constexpr std::uint64_t kLarger = std::uint64_t{1} << 32;
    std::uint64_t larger_before = 0;
    std::uint64_t equal_before = 0;
    const std::int64_t tile = std::int64_t{team.size()} * kOctet;
    for (std::int64_t begin = 0; begin < place.elements; begin += tile) {
      const std::int64_t first = begin + std::int64_t{team.rank()} * kOctet;
      const std::int64_t left = place.elements - first;
      const int n = left <= 0 ? 0 : left < kOctet ? static_cast<int>(left) : kOctet;
      float octet[kOctet] = {};
      if (n > 0) values.LoadOctet(first, n, octet);
      std::uint64_t own = 0;
      TUTTI_UNROLL
      for (int i = 0; i < kOctet; ++i) {
        if (i >= n) continue;
        const std::uint32_t magnitude = MagnitudeOf(octet[i]);
        own += magnitude > least ? kLarger : magnitude == least ? 1 : 0;
      }
      std::uint64_t total = 0;
      const std::uint64_t before = team.SumBefore(own, total);
      std::uint64_t larger = larger_before + before / kLarger;
      std::uint64_t equal = equal_before + before % kLarger;
      TUTTI_UNROLL
      for (int i = 0; i < kOctet; ++i) {
        const std::uint32_t magnitude = MagnitudeOf(octet[i]);
        if (i >= n || magnitude < least) continue;
        const bool selected = magnitude > least || equal < ties;
        if (selected) {
          const auto k = static_cast<std::int64_t>(larger + (equal < ties ? equal : ties));
          Put(octet[i], place.code + 4 * k);
          PutIndex(first + i, index_bytes, indices + k * index_bytes);
        }
        magnitude > least ? ++larger : ++equal;
      }
      larger_before += total / kLarger;
      equal_before += total % kLarger;
    }
  }

  // An index that does not ascend, or lies outside the block, is an invalid code, unless the code begins with NaN.
  template <class Team>
  TUTTI_HOST_DEVICE static bool Decode(const Team& team, Scratch& /*scratch*/, const MessageLayout& layout,
                                       const BlockPlace<const std::uint8_t>& place, Output output,
                                       const ValueSink& values) {
    const std::int64_t kept = KeptOf(layout, place.index);
    const std::int64_t index_bytes = IndexBytes(place.elements);
    const std::uint8_t* const indices = place.code + 4 * kept;
    const float first = At(place.code, 0);
    if (team.Any(first != first)) {
      ForEachOctet(team, place.elements, [&](std::int64_t begin, int n) {
        float octet[kOctet];
        TUTTI_UNROLL
        for (int i = 0; i < kOctet; ++i) octet[i] = output == Output::kRemainder ? 0.0f : first;
        values.PutOctet(Output::kSet, octet, begin, n);
      });
      return true;
    }
    if (output == Output::kSet) {
      ForEachOctet(team, place.elements, [&](std::int64_t begin, int n) {
        const float octet[kOctet] = {};
        values.PutOctet(Output::kSet, octet, begin, n);
      });
      team.Sync();
    }
    bool valid = true;
    for (std::int64_t k = team.rank(); k < kept; k += team.size()) {
      const std::uint64_t index = IndexAt(indices, k, index_bytes);
      if (index >= static_cast<std::uint64_t>(place.elements) ||
          (k > 0 && index <= IndexAt(indices, k - 1, index_bytes))) {
        valid = false;
        continue;
      }
      const float value = k == 0 ? first : At(place.code, k);
      const float decoded = 0.0f + value;  // the sign of a zero is lost in the zeros that the others decode to
      values.Put(output, output == Output::kAdd ? value : decoded, static_cast<std::int64_t>(index));
    }
    return valid;
  }

 private:
  TUTTI_HOST_DEVICE static std::int64_t KeptOf(const MessageLayout& layout, std::int64_t block) {
    return block == layout.blocks - 1 ? layout.kept_of_last : layout.kept;
  }

  // The function of select_largest.h: false when a value is not finite, otherwise the least selected magnitude and, in
  // the place of the number of selected values, how many of this magnitude are selected.
  template <class Team>
  TUTTI_HOST_DEVICE static bool FindLargest(const Team& team, Scratch& scratch, const ValueSource& values,
                                            std::int64_t count, std::uint32_t& least, std::uint64_t& ties) {
    for (int round = 0; round < kSelectionRounds; ++round) {
      const SelectionRound bits = SelectionRoundAt(round);
      const std::uint32_t bins = 1u << bits.bits;
      for (std::uint32_t bin = static_cast<std::uint32_t>(team.rank()); bin < bins; bin += team.size()) {
        scratch.bins[bin] = 0;
      }
      team.Sync();
      bool infinite = false;
      ForEachOctet(team, count, [&](std::int64_t begin, int n) {
        float octet[kOctet];
        values.LoadOctet(begin, n, octet);
        TUTTI_UNROLL
        for (int i = 0; i < kOctet; ++i) {
          if (i >= n) continue;
          infinite = infinite || MagnitudeOf(octet[i]) >= 0x7F800000u;
          const std::uint32_t magnitude = MagnitudeOf(octet[i]) >> bits.shift;
          if (magnitude >> bits.bits == least) team.Increment(scratch.bins[magnitude & (bins - 1)]);
        }
      });
      if (team.Any(infinite)) return false;
      team.Sync();
      FindBin(team, scratch, bins, ties);
      team.Sync();
      least = least << bits.bits | scratch.bin;
      ties = scratch.ties;
      team.Sync();
    }
    return true;
  }

  // Finds the bin in which the `ties`-th largest value lies, and how many of its values are among the `ties` largest.
  // Every thread looks at some bins, those of the largest values first.
  template <class Team>
  TUTTI_HOST_DEVICE static void FindBin(const Team& team, Scratch& scratch, std::uint32_t bins, std::uint64_t ties) {
    const std::uint32_t share = (bins + static_cast<std::uint32_t>(team.size()) - 1) / team.size();
    const std::uint32_t first = share * static_cast<std::uint32_t>(team.rank());
    std::uint64_t own = 0;
    for (std::uint32_t i = first; i < first + share && i < bins; ++i) own += scratch.bins[bins - 1 - i];
    std::uint64_t total = 0;
    std::uint64_t before = team.SumBefore(own, total);
    if (before >= ties || before + own < ties) return;
    std::uint32_t bin = bins - 1 - first;
    while (before + scratch.bins[bin] < ties) before += scratch.bins[bin--];
    scratch.bin = bin;
    scratch.ties = ties - before;
  }

  TUTTI_HOST_DEVICE static void Put(float value, std::uint8_t* to) {
    const float values[1] = {value};
    StoreElements(values, 1, to);
  }
  TUTTI_HOST_DEVICE static void PutIndex(std::int64_t index, std::int64_t bytes, std::uint8_t* to) {
    for (std::int64_t i = 0; i < bytes; ++i) to[i] = static_cast<std::uint8_t>(index >> (8 * i));
  }
  TUTTI_HOST_DEVICE static float At(const std::uint8_t* code, std::int64_t k) {
    float values[1];
    LoadElements(code + 4 * k, 1, values);
    return values[0];
  }
  TUTTI_HOST_DEVICE static std::uint64_t IndexAt(const std::uint8_t* indices, std::int64_t k, std::int64_t bytes) {
    std::uint64_t index = 0;
    for (std::int64_t i = 0; i < bytes; ++i) index |= std::uint64_t{indices[k * bytes + i]} << (8 * i);
    return index;
  }
};

}  // namespace tutti::kernels

#endif  // TUTTI_KERNELS_TOPK_CODER_H_
