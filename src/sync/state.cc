#include "sync/state.h"

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tutti/agreement.h"

namespace tutti {
namespace {

// Tells equal memory from different memory; no defence against an adversary.
std::uint64_t Hash(const StateMemory& memory) {
  constexpr std::uint64_t kPrime = 0x9e3779b97f4a7c15;
  const char* at = static_cast<const char*>(memory.data);
  std::uint64_t hash = kPrime ^ static_cast<std::uint64_t>(memory.bytes);
  for (std::int64_t left = memory.bytes; left > 0; left -= 8, at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, at, static_cast<std::size_t>(left < 8 ? left : 8));
    hash = (hash ^ word) * kPrime;
    hash ^= hash >> 32;
  }
  return hash;
}

template <typename ValueOf>
absl::Status AgreeOnRanges(Communicator& communicator, absl::Span<const StateMemory> memory, absl::string_view field,
                           ValueOf value) {
  std::vector<std::pair<std::string, std::string>> fields = {{"ranges", absl::StrCat(memory.size())}};
  for (std::size_t i = 0; i < memory.size(); ++i) {
    fields.emplace_back(absl::StrCat(field, " of range ", i), value(memory[i]));
  }
  return Agree(communicator, "state", fields);
}

}  // namespace

absl::Status BroadcastState(Communicator& communicator, absl::Span<const StateMemory> memory) {
  absl::Status sizes =
      AgreeOnRanges(communicator, memory, "bytes", [](const StateMemory& range) { return absl::StrCat(range.bytes); });
  if (!sizes.ok()) return sizes;
  for (const StateMemory& range : memory) {
    if (range.bytes == 0) continue;
    Work broadcast =
        communicator.Broadcast(range.data, range.data, range.bytes, DType::kU8, /*root=*/0, {.caller_drives = true});
    if (absl::Status status = broadcast.Wait(); !status.ok()) return status;
  }
  return CheckState(communicator, memory);
}

absl::Status CheckState(Communicator& communicator, absl::Span<const StateMemory> memory) {
  absl::Status equal = AgreeOnRanges(communicator, memory, "hash", [](const StateMemory& range) {
    return absl::StrCat(absl::Hex(Hash(range), absl::kZeroPad16));
  });
  if (!absl::IsInvalidArgument(equal)) return equal;
  return absl::DataLossError(absl::StrCat("the replicas differ: ", equal.message()));
}

}  // namespace tutti
