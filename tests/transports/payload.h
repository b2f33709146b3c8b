// The bytes of messages in tests of transports.
#ifndef TUTTI_TESTS_TRANSPORTS_PAYLOAD_H_
#define TUTTI_TESTS_TRANSPORTS_PAYLOAD_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

namespace tutti {

// `bytes` bytes that differ between seeds; quick to make, because messages of these tests are long.
inline std::string Payload(std::size_t bytes, std::uint64_t seed) {
  std::string data(bytes, '\0');
  std::uint64_t word = seed * 0x9E3779B97F4A7C15 + 1;
  for (std::size_t at = 0; at < bytes; at += sizeof(word)) {
    word = word * 6364136223846793005 + 1442695040888963407;
    std::memcpy(data.data() + at, &word, std::min(sizeof(word), bytes - at));
  }
  return data;
}

}  // namespace tutti

#endif  // TUTTI_TESTS_TRANSPORTS_PAYLOAD_H_
