// How a kernel of a device reports a message that it cannot decode: in a word of memory, since a kernel returns
// nothing.
#ifndef TUTTI_KERNELS_DECODE_FAULT_H_
#define TUTTI_KERNELS_DECODE_FAULT_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/host_device.h"

namespace tutti::kernels {

enum class FaultKind : std::uint32_t { kNone = 0, kHeader = 1, kCode = 2 };

// The word that a kernel writes for message `message` of a launch. A word of 0 says that there was no fault; of several
// faults one is reported.
constexpr std::uint32_t DecodeFaultWord(FaultKind kind, int message) {
  return static_cast<std::uint32_t>(message) << 2 | static_cast<std::uint32_t>(kind);
}

constexpr FaultKind KindOfDecodeFault(std::uint32_t word) { return static_cast<FaultKind>(word & 3u); }
constexpr int MessageOfDecodeFault(std::uint32_t word) { return static_cast<int>(word >> 2); }

// DataLoss that says what is wrong with the message, or OK for 0.
inline absl::Status StatusOfDecodeFault(std::uint32_t word) {
  if (word == 0) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("message ", MessageOfDecodeFault(word), " of those decoded together ",
                   KindOfDecodeFault(word) == FaultKind::kHeader
                       ? "has another header than messages of this codec, these options and this count"
                       : "has a code that no encoder writes"));
}

}  // namespace tutti::kernels

#endif  // TUTTI_KERNELS_DECODE_FAULT_H_
