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

std::string NameOf(absl::Span<const StateMemory> memory, std::size_t i) {
  return memory[i].name.empty() ? absl::StrCat("range ", i) : memory[i].name;
}

// The first mistake of this rank in `memory`, which nobody may read or write then. The text does not name the rank:
// Agree does, unless all ranks have made the same mistake.
absl::Status CheckRanges(const BucketMemory& where, absl::Span<const StateMemory> memory) {
  for (std::size_t i = 0; i < memory.size(); ++i) {
    const StateMemory& range = memory[i];
    if (range.bytes < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("bytes of ", NameOf(memory, i), " is ", range.bytes, ", must be at least 0"));
    }
    if (range.data == nullptr && range.bytes > 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("data of ", NameOf(memory, i), " is null, must be memory of ", range.bytes, " bytes"));
    }
    if (where.on_device()) continue;  // such memory also stands for ranges of the host
    if (absl::Status is_here = where.Check(range.data); !is_here.ok()) {
      return absl::Status(is_here.code(), absl::StrCat(NameOf(memory, i), ": ", is_here.message()));
    }
  }
  return absl::OkStatus();
}

// The hash of the bytes, wherever they lie.
absl::StatusOr<std::uint64_t> HashOf(BucketMemory& where, const StateMemory& memory) {
  const auto bytes = static_cast<std::size_t>(memory.bytes);
  if (!where.on_device()) return Hash({static_cast<const char*>(memory.data), bytes});
  std::string copy(bytes, '\0');
  if (absl::Status copied = where.Transfer(copy.data(), memory.data, memory.bytes); !copied.ok()) return copied;
  return Hash(copy);
}

template <typename ValueOf>
absl::Status AgreeOnRanges(Communicator& communicator, absl::Span<const StateMemory> memory, absl::string_view field,
                           const absl::Status& mistake, const CallOptions& call, ValueOf value) {
  AgreementFields fields = {{"ranges", absl::StrCat(memory.size())}};
  for (std::size_t i = 0; i < memory.size(); ++i) {
    fields.emplace_back(absl::StrCat(field, " of ", NameOf(memory, i)), value(i));
  }
  return Agree(communicator, "state", std::move(fields), mistake, call);
}

absl::Status AgreeOnSizes(Communicator& communicator, absl::Span<const StateMemory> memory, const absl::Status& mistake,
                          const CallOptions& call) {
  return AgreeOnRanges(communicator, memory, "bytes", mistake, call,
                       [&](std::size_t i) { return absl::StrCat(memory[i].bytes); });
}

}  // namespace

absl::Status BroadcastState(Communicator& communicator, BucketMemory& where, absl::Span<const StateMemory> memory,
                            const CallOptions& call) {
  // A rank with a mistake takes part in the agreement, because its peers would wait for it in a broadcast.
  absl::Status sizes = AgreeOnSizes(communicator, memory, CheckRanges(where, memory), call);
  if (!sizes.ok()) return sizes;
  CallOptions driven = call;
  driven.caller_drives = true;
  for (const StateMemory& range : memory) {
    if (range.bytes == 0) continue;
    Work broadcast = communicator.Broadcast(range.data, range.data, range.bytes, DType::kU8, /*root=*/0, driven);
    if (absl::Status status = broadcast.Wait(); !status.ok()) return status;
  }
  return CheckState(communicator, where, memory, call);
}

absl::Status CheckState(Communicator& communicator, BucketMemory& where, absl::Span<const StateMemory> memory,
                        const CallOptions& call) {
  absl::Status mistake = CheckRanges(where, memory);
  std::vector<std::uint64_t> hashes;
  for (std::size_t i = 0; i < memory.size() && mistake.ok(); ++i) {
    const absl::StatusOr<std::uint64_t> hash = HashOf(where, memory[i]);
    mistake.Update(hash.status());
    hashes.push_back(hash.value_or(0));
  }
  // A rank that could not read its memory has no hash: the replicas need not differ.
  if (absl::Status read = AgreeOnSizes(communicator, memory, mistake, call); !read.ok()) return read;
  absl::Status equal = AgreeOnRanges(communicator, memory, "hash", absl::OkStatus(), call, [&](std::size_t i) {
    return absl::StrCat(absl::Hex(hashes[i], absl::kZeroPad16));
  });
  // When a peer makes another call, the communicator has failed, and the replicas need not differ.
  if (!absl::IsInvalidArgument(equal) || !communicator.status().ok()) return equal;
  return absl::DataLossError(absl::StrCat("the replicas differ: ", equal.message()));
}

}  // namespace tutti
