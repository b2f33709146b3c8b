// A native transport without collectives of its own: it moves messages between the memory of devices by way of pinned
// memory of the host, over the Transport of the ranks. It needs no NCCL, and ranks may share a device.
#ifndef TUTTI_STAGED_TRANSPORT_H_
#define TUTTI_STAGED_TRANSPORT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "tutti/native_transport.h"
#include "tutti/transport.h"

namespace tutti {

struct CudaRuntime;  // memory/cuda_runtime.h

struct StagedOptions {
  const CudaRuntime* cuda = nullptr;  // outlives the native transport
  int device = 0;
  std::shared_ptr<Transport> transport;
  Rank rank = 0;  // in the group
  struct Peer {
    Rank world_rank = 0;
    // The number under which that rank receives the messages of this native transport (GroupOf of a tag); no other
    // message has it.
    std::uint32_t number = 0;
  };
  std::vector<Peer> peers = {};  // in group order, this rank included
  // Called by the destructor, when this rank's number is free again. May be empty.
  std::function<void()> give_number_back = {};
};

// Besides what NativeTransport says: Enqueue, Ready, Abort and Unfinished call functions of the Transport, so the
// thread that calls them is the Transport's. A group ends under Ready: nothing on the stream waits for the host or for
// a peer.
absl::StatusOr<std::unique_ptr<NativeTransport>> MakeStagedTransport(StagedOptions options);

}  // namespace tutti

#endif  // TUTTI_STAGED_TRANSPORT_H_
