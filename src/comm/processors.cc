#include "comm/processors.h"

#include <sched.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <thread>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/string_view.h"

namespace tutti {

std::string AllowedProcessors() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (::sched_getaffinity(0, sizeof(allowed), &allowed) != 0) {
    // The machine has more processors than the set has room for: the text then gives their number, and not which they
    // are.
    return std::string(std::thread::hardware_concurrency() / 8 * 2, 'f');
  }
  std::string bytes(reinterpret_cast<const char*>(&allowed), sizeof(allowed));
  bytes.resize(bytes.find_last_not_of('\0') + 1);
  return absl::BytesToHexString(bytes);
}

int CountProcessors(absl::Span<const std::string> allowed) {
  std::string any;
  for (const std::string& text : allowed) {
    if (text.empty() || text.size() % 2 != 0 || !std::all_of(text.begin(), text.end(), absl::ascii_isxdigit)) return 0;
    const std::string bytes = absl::HexStringToBytes(text);
    any.resize(std::max(any.size(), bytes.size()));
    for (std::size_t i = 0; i < bytes.size(); ++i) any[i] = static_cast<char>(any[i] | bytes[i]);
  }
  int count = 0;
  for (const char byte : any) count += std::popcount(static_cast<std::uint8_t>(byte));
  return count;
}

}  // namespace tutti
