#include "transports/nccl/connected.h"

#include "absl/hash/hash.h"
#include "tutti/collective.h"

namespace tutti::nccl {
namespace {

// Calls `visit` with each message, and with the collectives together, of `calls`, as numbers.
template <typename Visit>
void ForEachKind(absl::Span<const NativeCall> calls, Visit visit) {
  std::uint64_t collectives = 0;
  for (const NativeCall& call : calls) {
    if (call.count == 0) continue;  // NCCL does not hear of the call
    if (IsPointToPoint(call.collective)) {
      visit(std::uint64_t{absl::HashOf(call.collective, call.root)});
    } else {
      collectives = absl::HashOf(collectives, call.collective, call.dtype, call.op, call.count, call.root);
    }
  }
  if (collectives != 0) visit(collectives);
}

}  // namespace

bool Connected::Serves(absl::Span<const NativeCall> calls) const {
  bool all = true;
  ForEachKind(calls, [&](std::uint64_t kind) { all = all && kinds_.contains(kind); });
  return all;
}

void Connected::Add(absl::Span<const NativeCall> calls) {
  ForEachKind(calls, [&](std::uint64_t kind) {
    if (kinds_.size() == kMaxKinds) kinds_.clear();
    kinds_.insert(kind);
  });
}

}  // namespace tutti::nccl
