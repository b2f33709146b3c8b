// The calls for which NCCL has connected to the peers.
#ifndef TUTTI_TRANSPORTS_NCCL_CONNECTED_H_
#define TUTTI_TRANSPORTS_NCCL_CONNECTED_H_

#include <cstddef>
#include <cstdint>

#include "absl/container/flat_hash_set.h"
#include "absl/types/span.h"
#include "tutti/native_transport.h"

namespace tutti::nccl {

// NCCL connects to a peer when a message first goes there or comes from there, and for a collective when it first uses
// an algorithm, which it chooses by all arguments of the group's collectives but their memory. Calls that NCCL has
// connected for do not wait for peers.
class Connected {
 public:
  // The most kinds of calls that are remembered, in less than 128 KiB. All are forgotten when there are more.
  static constexpr std::size_t kMaxKinds = 4096;

  // Whether groups have been made that had all messages of `calls`, and one that had their collectives. Allocates
  // nothing.
  bool Serves(absl::Span<const NativeCall> calls) const;
  void Add(absl::Span<const NativeCall> calls);

 private:
  absl::flat_hash_set<std::uint64_t> kinds_;
};

}  // namespace tutti::nccl

#endif  // TUTTI_TRANSPORTS_NCCL_CONNECTED_H_
