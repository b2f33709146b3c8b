// Coders that a message's elements go through one by one, as teams of threads run them. Every coder has
//
//   kAlone      whether each element is decoded from the levels of its block and its own code alone
//   Scratch     memory that the team shares
//   Encode(team, scratch, layout, place, values, draw)    writes the numbers and the code of a block
//   Decode(team, scratch, layout, place, output, values)  false in a thread that meets a code that no encoder writes
//
// and those that decode elements alone have Levels, LevelsOf(place) and DecodeOctet(levels, code, begin, n, octet).
#ifndef TUTTI_KERNELS_SINGLE_CODERS_H_
#define TUTTI_KERNELS_SINGLE_CODERS_H_

#include <cstdint>
#include <type_traits>

#include "kernels/floating_element.h"
#include "kernels/message_layout.h"
#include "kernels/stochastic_cast.h"
#include "kernels/team.h"
#include "tutti/codecs/random.h"

namespace tutti::kernels {

template <class Coder>
struct AloneCoder {
  static constexpr bool kAlone = true;
  struct Scratch {};

  template <class Team>
  TUTTI_HOST_DEVICE static bool Decode(const Team& team, Scratch& /*scratch*/, const MessageLayout& /*layout*/,
                                       const BlockPlace<const std::uint8_t>& place, Output output,
                                       const ValueSink& values) {
    const auto levels = Coder::LevelsOf(place);
    ForEachOctet(team, place.elements, [&](std::int64_t begin, int n) {
      float octet[kOctet];
      Coder::DecodeOctet(levels, place.code, begin, n, octet);
      values.PutOctet(output, octet, begin, n);
    });
    return true;
  }
};

// Levels of a coder whose blocks have no numbers.
struct NoLevels {};

// Elements as they are.
struct RawCoder : AloneCoder<RawCoder> {
  using Levels = NoLevels;
  TUTTI_HOST_DEVICE static Levels LevelsOf(const BlockPlace<const std::uint8_t>& /*place*/) { return {}; }
  TUTTI_HOST_DEVICE static void DecodeOctet(const Levels& /*levels*/, const std::uint8_t* code, std::int64_t begin,
                                            int n, float (&octet)[kOctet]) {
    LoadElements(code + begin * std::int64_t{sizeof(float)}, n, octet);
  }

  template <class Team>
  TUTTI_HOST_DEVICE static void Encode(const Team& team, Scratch& /*scratch*/, const MessageLayout& /*layout*/,
                                       const BlockPlace<std::uint8_t>& place, const ValueSource& values,
                                       std::uint64_t /*draw*/) {
    ForEachOctet(team, place.elements, [&](std::int64_t begin, int n) {
      float octet[kOctet];
      values.LoadOctet(begin, n, octet);
      StoreElements(octet, n, place.code + begin * std::int64_t{sizeof(float)});
    });
  }
};

// Elements rounded to a 16-bit format.
template <class Format>
struct CastCoder : AloneCoder<CastCoder<Format>> {
  using Levels = NoLevels;
  using Scratch = typename AloneCoder<CastCoder<Format>>::Scratch;

  TUTTI_HOST_DEVICE static Levels LevelsOf(const BlockPlace<const std::uint8_t>& /*place*/) { return {}; }
  TUTTI_HOST_DEVICE static void DecodeOctet(const Levels& /*levels*/, const std::uint8_t* code, std::int64_t begin,
                                            int n, float (&octet)[kOctet]) {
    std::uint16_t elements[kOctet];
    LoadElements(code + begin * std::int64_t{sizeof(std::uint16_t)}, n, elements);
    TUTTI_UNROLL
    for (int i = 0; i < kOctet; ++i) octet[i] = Format::Load(elements[i]);
  }

  template <class Team>
  TUTTI_HOST_DEVICE static void Encode(const Team& team, Scratch& /*scratch*/, const MessageLayout& layout,
                                       const BlockPlace<std::uint8_t>& place, const ValueSource& values,
                                       std::uint64_t draw) {
    const RandomStream random = MakeRandomStream(layout.seed, draw, 0);
    ForEachOctet(team, place.elements, [&](std::int64_t begin, int n) {
      float octet[kOctet];
      values.LoadOctet(begin, n, octet);
      std::uint16_t elements[kOctet];
      TUTTI_UNROLL
      for (int i = 0; i < kOctet; ++i) {
        const auto index = static_cast<std::uint32_t>(place.begin + begin + i);
        elements[i] = layout.stochastic ? AtRandom(octet[i], RandomWord(random, index)) : Format::Store(octet[i]);
      }
      StoreElements(elements, n, place.code + begin * std::int64_t{sizeof(std::uint16_t)});
    });
  }

 private:
  TUTTI_HOST_DEVICE static std::uint16_t AtRandom(float value, std::uint32_t word) {
    if constexpr (std::is_same_v<Format, Float16Element>) {
      return Float16AtRandom(value, word);
    } else {
      return BFloat16AtRandom(value, word);
    }
  }
};

}  // namespace tutti::kernels

#endif  // TUTTI_KERNELS_SINGLE_CODERS_H_
