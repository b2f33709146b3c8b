// Integers as little-endian bytes, whatever the machine.
#ifndef TUTTI_STORE_BYTE_ORDER_H_
#define TUTTI_STORE_BYTE_ORDER_H_

#include <cstdint>
#include <string>
#include <type_traits>

#include "absl/strings/string_view.h"

namespace tutti {

template <typename T>
void AppendInteger(T value, std::string& out) {
  auto bits = static_cast<std::make_unsigned_t<T>>(value);
  for (std::size_t i = 0; i < sizeof(T); ++i) out.push_back(static_cast<char>((bits >> (8 * i)) & 0xff));
}

// Takes an integer from the front of `bytes`; false, changing nothing, when `bytes` is too short.
template <typename T>
bool TakeInteger(absl::string_view& bytes, T& value) {
  if (bytes.size() < sizeof(T)) return false;
  std::make_unsigned_t<T> bits = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    bits = static_cast<std::make_unsigned_t<T>>(
        bits | static_cast<std::make_unsigned_t<T>>(
                   static_cast<std::make_unsigned_t<T>>(static_cast<unsigned char>(bytes[i])) << (8 * i)));
  }
  value = static_cast<T>(bits);
  bytes.remove_prefix(sizeof(T));
  return true;
}

}  // namespace tutti

#endif  // TUTTI_STORE_BYTE_ORDER_H_
