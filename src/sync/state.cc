#include "sync/state.h"

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sync/hash.h"
#include "tutti/agreement.h"

namespace tutti {
namespace {

std::uint64_t HashOf(const StateMemory& memory) {
  return Hash({static_cast<const char*>(memory.data), static_cast<std::size_t>(memory.bytes)});
}

template <typename ValueOf>
absl::Status AgreeOnRanges(Communicator& communicator, absl::Span<const StateMemory> memory, absl::string_view field,
                           ValueOf value) {
  AgreementFields fields = {{"ranges", absl::StrCat(memory.size())}};
  for (std::size_t i = 0; i < memory.size(); ++i) {
    fields.emplace_back(absl::StrCat(field, " of range ", i), value(memory[i]));
  }
  return Agree(communicator, "state", std::move(fields));
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
    return absl::StrCat(absl::Hex(HashOf(range), absl::kZeroPad16));
  });
  if (!absl::IsInvalidArgument(equal)) return equal;
  return absl::DataLossError(absl::StrCat("the replicas differ: ", equal.message()));
}

}  // namespace tutti
