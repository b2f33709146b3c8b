// The coder of `sign`: one bit for each element, and the mean magnitude of the block (sign_bits.h).
#ifndef TUTTI_KERNELS_SIGN_CODER_H_
#define TUTTI_KERNELS_SIGN_CODER_H_

#include <bit>
#include <cstdint>

#include "kernels/sign_bits.h"
#include "kernels/single_coders.h"

namespace tutti::kernels {

struct SignCoder : AloneCoder<SignCoder> {
  static constexpr bool kOnePass = false;
  using Levels = float;  // the scale
  struct Numbers {
    float scale[1];
  };
  struct Code {
    std::uint32_t bits;
  };
  struct Scratch {
    double sums[kPartialSums];
  };

  TUTTI_HOST_DEVICE static void LoadNumbers(const BlockPlace<const std::uint8_t>& place, Numbers& numbers) {
    LoadElements(place.numbers, 1, numbers.scale);
  }
  TUTTI_HOST_DEVICE static Levels LevelsOf(const Numbers& numbers) { return numbers.scale[0]; }
  TUTTI_HOST_DEVICE static void LoadCode(const std::uint8_t* code, std::int64_t begin, int /*n*/, Code& of_octet) {
    of_octet.bits = code[begin / kOctet];
  }
  TUTTI_HOST_DEVICE static void ValuesOf(float scale, Code of_octet, float (&octet)[kOctet]) {
    TUTTI_UNROLL
    for (int i = 0; i < kOctet; ++i) octet[i] = (of_octet.bits >> i & 1u) != 0 ? -scale : scale;
  }

  template <class Team>
  TUTTI_HOST_DEVICE static void Encode(const Team& team, Scratch& scratch, const MessageLayout& /*layout*/,
                                       const BlockPlace<std::uint8_t>& place, const ValueSource& values,
                                       std::uint64_t /*draw*/) {
    const double sum = SumOfMagnitudes(team, scratch, values, place.elements);
    const bool finite = IsFinite(sum);
    ForEachOctet(team, place.elements, [&](std::int64_t begin, int n) {
      float octet[kOctet];
      values.LoadOctet(begin, n, octet);
      std::uint32_t bits = 0;
      TUTTI_UNROLL
      for (int i = 0; i < kOctet; ++i) {
        bits |= static_cast<std::uint32_t>(i < n && IsSentNegative(octet[i], static_cast<std::size_t>(i))) << i;
      }
      place.code[begin / kOctet] = finite && sum != 0 ? static_cast<std::uint8_t>(bits) : std::uint8_t{0};
    });
    const float mean = static_cast<float>(sum / static_cast<double>(place.elements));
    const float numbers[1] = {finite ? mean : std::bit_cast<float>(0x7FC00000u)};
    if (team.rank() == 0) StoreElements(numbers, 1, place.numbers);
  }

 private:
  // As the function of sign_bits.h sums: in partial sums, which are added up two by two.
  template <class Team>
  TUTTI_HOST_DEVICE static double SumOfMagnitudes(const Team& team, Scratch& scratch, const ValueSource& values,
                                                  std::int64_t count) {
    for (int k = team.rank(); k < kPartialSums; k += team.size()) {
      double sum = 0;
      for (std::int64_t i = k; i < count; i += kPartialSums) {
        const auto value = static_cast<double>(values.At(i));
        sum += value < 0 ? -value : value;
      }
      scratch.sums[k] = sum;
    }
    team.Sync();
    double sums[kPartialSums];
    TUTTI_UNROLL
    for (int k = 0; k < kPartialSums; ++k) sums[k] = scratch.sums[k];
    TUTTI_UNROLL
    for (int half = kPartialSums / 2; half > 0; half /= 2) {
      TUTTI_UNROLL
      for (int k = 0; k < kPartialSums / 2; ++k) {
        if (k < half) sums[k] += sums[k + half];
      }
    }
    return sums[0];
  }
};

}  // namespace tutti::kernels

#endif  // TUTTI_KERNELS_SIGN_CODER_H_
