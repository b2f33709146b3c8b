// Counter-based random numbers: word `index` of a stream is a function of (stream, index), so that any element can be
// drawn alone, in any order, on any machine. The functions keep no state.
#ifndef TUTTI_CODECS_RANDOM_H_
#define TUTTI_CODECS_RANDOM_H_

#include <cstdint>

namespace tutti::kernels {

// 2^64 divided by the golden ratio, as an odd number: multiples of it are spread evenly over 64 bits.
inline constexpr std::uint64_t kGoldenRatio64 = 0x9E3779B97F4A7C15u;

// The output function of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
constexpr std::uint64_t Mix(std::uint64_t value) {
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
  return value ^ (value >> 31);
}

// The name of one stream of 2^32 words.
struct RandomStream {
  std::uint32_t first = 0;
  std::uint32_t second = 0;
};

// The stream of (seed, draw, part); streams with different names are independent of each other.
constexpr RandomStream MakeRandomStream(std::uint64_t seed, std::uint64_t draw, std::uint64_t part) {
  const std::uint64_t key = Mix(Mix(Mix(seed + kGoldenRatio64) + draw + kGoldenRatio64) + part + kGoldenRatio64);
  return {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)};
}

// Word `index` of the stream: the rounds of `lowbias32` by C. Wellons (https://github.com/skeeto/hash-prospector), with
// the second half of the key between them.
constexpr std::uint32_t RandomWord(RandomStream stream, std::uint32_t index) {
  std::uint32_t word = index + stream.first;
  word = (word ^ (word >> 16)) * 0x21F0AAADu;
  word ^= stream.second;
  word = (word ^ (word >> 15)) * 0xD35A2D97u;
  return word ^ (word >> 15);
}

// The upper 24 bits of `word` as a number in [0, 1).
constexpr float UnitFromWord(std::uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }

}  // namespace tutti::kernels

#endif  // TUTTI_CODECS_RANDOM_H_
