// Keys, message authentication codes and random bytes of the TCP store.
#ifndef TUTTI_STORE_MAC_H_
#define TUTTI_STORE_MAC_H_

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tutti {

using Key = std::array<std::uint8_t, 32>;
using Mac = std::array<std::uint8_t, 32>;
using Nonce = std::array<std::uint8_t, 32>;

// HMAC-SHA256 over the parts, one after the other. Parts of variable length must not be adjacent.
Mac Hmac(const Key& key, std::initializer_list<absl::string_view> parts);
// Compares in a time that does not depend on where the MACs differ, which would help to forge a MAC.
bool SameMac(absl::string_view received, const Mac& expected);

std::array<std::uint8_t, 32> Sha256(absl::string_view text);

void FillRandom(absl::Span<std::uint8_t> bytes);
// Overwrites `bytes` in a way that the compiler does not optimize away.
void Wipe(absl::Span<std::uint8_t> bytes);

template <std::size_t N>
absl::string_view View(const std::array<std::uint8_t, N>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), N};
}

}  // namespace tutti

#endif  // TUTTI_STORE_MAC_H_
