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
                           const CallOptions& call, ValueOf value) {
  AgreementFields fields = {{"ranges", absl::StrCat(memory.size())}};
  for (std::size_t i = 0; i < memory.size(); ++i) {
    const std::string name = memory[i].name.empty() ? absl::StrCat("range ", i) : memory[i].name;
    fields.emplace_back(absl::StrCat(field, " of ", name), value(memory[i]));
  }
  return Agree(communicator, "state", std::move(fields), absl::OkStatus(), call);
}

}  // namespace

absl::Status BroadcastState(Communicator& communicator, absl::Span<const StateMemory> memory, const CallOptions& call) {
  absl::Status sizes = AgreeOnRanges(communicator, memory, "bytes", call,
                                     [](const StateMemory& range) { return absl::StrCat(range.bytes); });
  if (!sizes.ok()) return sizes;
  CallOptions driven = call;
  driven.caller_drives = true;
  for (const StateMemory& range : memory) {
    if (range.bytes == 0) continue;
    Work broadcast = communicator.Broadcast(range.data, range.data, range.bytes, DType::kU8, /*root=*/0, driven);
    if (absl::Status status = broadcast.Wait(); !status.ok()) return status;
  }
  return CheckState(communicator, memory, call);
}

absl::Status CheckState(Communicator& communicator, absl::Span<const StateMemory> memory, const CallOptions& call) {
  absl::Status equal = AgreeOnRanges(communicator, memory, "hash", call, [](const StateMemory& range) {
    return absl::StrCat(absl::Hex(HashOf(range), absl::kZeroPad16));
  });
  // When a peer makes another call, the communicator has failed, and the replicas need not differ.
  if (!absl::IsInvalidArgument(equal) || !communicator.status().ok()) return equal;
  return absl::DataLossError(absl::StrCat("the replicas differ: ", equal.message()));
}

}  // namespace tutti
