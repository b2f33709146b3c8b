// Coders that a message's elements go through one by one, as teams of threads run them. Every coder has
//
//   Scratch     memory that the team shares
//   kOnePass    whether an encoder reads octets of any values, and leaves the remainder at once
//   kAlone      whether each element is decoded from the levels of its block and its own code alone
//   Encode      writes the numbers and the code of a block
//   Decode(team, scratch, layout, place, output, values)  false in a thread that meets a code that no encoder writes
//
// With kOnePass, Encode is called with (team, layout, place, values, draw, residual): `values` have LoadOctet, and
// ReloadOctet for a second look at an octet; `residual`, unless null, gets what the code loses. Other coders' Encode is
// called with (team, scratch, layout, place, values, draw), `values` being a ValueSource. Coders that decode elements
// alone have Numbers and LoadNumbers(place, numbers), Levels and LevelsOf(numbers), Code and LoadCode(code, begin, n,
// of_octet), which loads the code of an octet, and ValuesOf(levels, of_octet, octet).
#ifndef TUTTI_KERNELS_SINGLE_CODERS_H_
#define TUTTI_KERNELS_SINGLE_CODERS_H_

#include <cstdint>
#include <type_traits>

#include "kernels/floating_element.h"
#include "kernels/message_layout.h"
#include "kernels/stochastic_cast.h"
#include "kernels/team.h"
#include "kernels/value_range.h"
#include "tutti/codecs/random.h"

namespace tutti::kernels {

template <class Coder>
struct AloneCoder {
  static constexpr bool kAlone = true;
  static constexpr bool kOnePass = true;
  static constexpr bool kHasBlocks = true;  // whose length the options say
  struct Scratch {};

  template <class Team, class CodersScratch>
  TUTTI_HOST_DEVICE static bool Decode(const Team& team, CodersScratch& /*scratch*/, const MessageLayout& /*layout*/,
                                       const BlockPlace<const std::uint8_t>& place, Output output,
                                       const ValueSink& values) {
    typename Coder::Numbers numbers;
    Coder::LoadNumbers(place, numbers);
    const auto levels = Coder::LevelsOf(numbers);
    ForEachOctet(team, place.elements, [&](std::int64_t begin, int n) {
      typename Coder::Code of_octet;
      Coder::LoadCode(place.code, begin, n, of_octet);
      float octet[kOctet];
      Coder::ValuesOf(levels, of_octet, octet);
      values.PutOctet(output, octet, begin, n);
    });
    return true;
  }
};

// Numbers and levels of a coder whose blocks have none.
struct NoNumbers {};

// Stores what the code of an octet loses, from element `begin` of the block's residual on.
TUTTI_HOST_DEVICE inline void StoreRemainder(const float (&octet)[kOctet], const float (&decoded)[kOctet], int n,
                                             float* residual) {
  float remainder[kOctet];
  TUTTI_UNROLL
  for (int i = 0; i < kOctet; ++i) remainder[i] = OutputOf(Output::kRemainder, octet[i], decoded[i]);
  StoreElements(remainder, n, residual);
}

// Encodes each octet by coder.EncodeOctet(begin, octet, of_octet), which does not depend on other octets.
template <class Coder, class Team, class Values>
TUTTI_HOST_DEVICE void EncodeAlone(const Team& team, const BlockPlace<std::uint8_t>& place, const Values& values,
                                   float* residual, const Coder& coder) {
  ForEachOctet(team, place.elements, [&](std::int64_t begin, int n) {
    float octet[kOctet];
    values.LoadOctet(begin, n, octet);
    typename Coder::Code of_octet;
    coder.EncodeOctet(begin, octet, of_octet);
    Coder::StoreCode(of_octet, begin, n, place.code);
    if (residual == nullptr) return;
    float decoded[kOctet];
    Coder::ValuesOf({}, of_octet, decoded);
    StoreRemainder(octet, decoded, n, residual + begin);
  });
}

// The code of an octet whose elements are coded in one T each.
template <typename T>
struct PlainCode {
  static constexpr std::int64_t kBytes = sizeof(T);
  T elements[kOctet];
};

// A coder of PlainCode whose blocks have no numbers, and need none: they are cut for the threads' sake.
template <class Coder, typename T>
struct PlainCoder : AloneCoder<Coder> {
  static constexpr bool kHasBlocks = false;
  using Numbers = NoNumbers;
  using Levels = NoNumbers;
  using Code = PlainCode<T>;

  TUTTI_HOST_DEVICE static void LoadNumbers(const BlockPlace<const std::uint8_t>& /*place*/, Numbers& /*numbers*/) {}
  TUTTI_HOST_DEVICE static Levels LevelsOf(Numbers /*numbers*/) { return {}; }
  TUTTI_HOST_DEVICE static void LoadCode(const std::uint8_t* code, std::int64_t begin, int n, Code& of_octet) {
    LoadElements(code + begin * Code::kBytes, n, of_octet.elements);
  }
  TUTTI_HOST_DEVICE static void StoreCode(const Code& of_octet, std::int64_t begin, int n, std::uint8_t* code) {
    StoreElements(of_octet.elements, n, code + begin * Code::kBytes);
  }
};

// Elements as they are.
struct RawCoder : PlainCoder<RawCoder, float> {
  TUTTI_HOST_DEVICE static void ValuesOf(const Levels& /*levels*/, const Code& of_octet, float (&octet)[kOctet]) {
    TUTTI_UNROLL
    for (int i = 0; i < kOctet; ++i) octet[i] = of_octet.elements[i];
  }
  TUTTI_HOST_DEVICE void EncodeOctet(std::int64_t /*begin*/, const float (&octet)[kOctet], Code& of_octet) const {
    TUTTI_UNROLL
    for (int i = 0; i < kOctet; ++i) of_octet.elements[i] = octet[i];
  }

  template <class Team, class Values>
  TUTTI_HOST_DEVICE static void Encode(const Team& team, const MessageLayout& /*layout*/,
                                       const BlockPlace<std::uint8_t>& place, const Values& values,
                                       std::uint64_t /*draw*/, float* residual) {
    EncodeAlone(team, place, values, residual, RawCoder());
  }
};

// Elements rounded to a 16-bit format.
template <class Format>
class CastCoder : public PlainCoder<CastCoder<Format>, std::uint16_t> {
 public:
  using Code = PlainCode<std::uint16_t>;

  TUTTI_HOST_DEVICE static void ValuesOf(const NoNumbers& /*levels*/, const Code& of_octet, float (&octet)[kOctet]) {
    TUTTI_UNROLL
    for (int i = 0; i < kOctet; ++i) octet[i] = Format::Load(of_octet.elements[i]);
  }
  TUTTI_HOST_DEVICE void EncodeOctet(std::int64_t begin, const float (&octet)[kOctet], Code& of_octet) const {
    TUTTI_UNROLL
    for (int i = 0; i < kOctet; ++i) {
      const auto index = static_cast<std::uint32_t>(begin_of_block_ + begin + i);
      of_octet.elements[i] = stochastic_ ? AtRandom(octet[i], RandomWord(random_, index)) : Format::Store(octet[i]);
    }
  }

  template <class Team, class Values>
  TUTTI_HOST_DEVICE static void Encode(const Team& team, const MessageLayout& layout,
                                       const BlockPlace<std::uint8_t>& place, const Values& values, std::uint64_t draw,
                                       float* residual) {
    CastCoder coder;
    coder.stochastic_ = layout.stochastic;
    coder.random_ = MakeRandomStream(layout.seed, draw, 0);
    coder.begin_of_block_ = place.begin;
    EncodeAlone(team, place, values, residual, coder);
  }

 private:
  TUTTI_HOST_DEVICE static std::uint16_t AtRandom(float value, std::uint32_t word) {
    if constexpr (std::is_same_v<Format, Float16Element>) {
      return Float16AtRandom(value, word);
    } else {
      return BFloat16AtRandom(value, word);
    }
  }

  bool stochastic_ = false;
  RandomStream random_;
  std::int64_t begin_of_block_ = 0;
};

}  // namespace tutti::kernels

#endif  // TUTTI_KERNELS_SINGLE_CODERS_H_
