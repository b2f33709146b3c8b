#include "store/mac.h"

#include <sodium.h>

#include <cstdlib>

namespace tutti {
namespace {

// Aborts the process when the system gives no random bytes: there is no authentication without them, and no way to go
// on.
void RequireSodium() {
  static const bool ready = sodium_init() >= 0;
  if (!ready) std::abort();
}

const unsigned char* Bytes(absl::string_view text) { return reinterpret_cast<const unsigned char*>(text.data()); }

}  // namespace

Mac Hmac(const Key& key, std::initializer_list<absl::string_view> parts) {
  static_assert(crypto_auth_hmacsha256_BYTES == sizeof(Mac));
  RequireSodium();
  crypto_auth_hmacsha256_state state;
  crypto_auth_hmacsha256_init(&state, key.data(), key.size());
  for (absl::string_view part : parts) crypto_auth_hmacsha256_update(&state, Bytes(part), part.size());
  Mac mac;
  crypto_auth_hmacsha256_final(&state, mac.data());
  return mac;
}

bool SameMac(absl::string_view received, const Mac& expected) {
  return received.size() == expected.size() && sodium_memcmp(received.data(), expected.data(), expected.size()) == 0;
}

std::array<std::uint8_t, 32> Sha256(absl::string_view text) {
  std::array<std::uint8_t, 32> hash;
  static_assert(crypto_hash_sha256_BYTES == sizeof(hash));
  crypto_hash_sha256(hash.data(), Bytes(text), text.size());
  return hash;
}

void FillRandom(absl::Span<std::uint8_t> bytes) {
  RequireSodium();
  randombytes_buf(bytes.data(), bytes.size());
}

void Wipe(absl::Span<std::uint8_t> bytes) { sodium_memzero(bytes.data(), bytes.size()); }

}  // namespace tutti
