// A hash that tells equal memory from different memory; no defence against an adversary.
#ifndef TUTTI_SYNC_HASH_H_
#define TUTTI_SYNC_HASH_H_

#include <cstdint>
#include <cstring>

#include "absl/strings/string_view.h"
#include "tutti/codecs/random.h"

namespace tutti {

// Every step of the loop is a bijection of the word and of the hash so far: memory that differs in one word has another
// hash.
inline std::uint64_t Hash(absl::string_view memory) {
  std::uint64_t hash = kernels::kGoldenRatio64 ^ memory.size();
  for (std::size_t at = 0; at < memory.size(); at += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    const absl::string_view bytes = memory.substr(at, sizeof(word));
    std::memcpy(&word, bytes.data(), bytes.size());
    hash = (hash ^ word) * kernels::kGoldenRatio64;
    hash ^= hash >> 32;
  }
  return hash;
}

}  // namespace tutti

#endif  // TUTTI_SYNC_HASH_H_
