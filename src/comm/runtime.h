// What a communicator shares with those split from it: the transport, its arena and its engine.
#ifndef TUTTI_COMM_RUNTIME_H_
#define TUTTI_COMM_RUNTIME_H_

#include <atomic>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "engine/channel.h"
#include "engine/control_block.h"
#include "engine/engine.h"
#include "memory/arena.h"
#include "tutti/bootstrap.h"
#include "tutti/communicator.h"
#include "tutti/transport.h"

namespace tutti {

struct Runtime {
  std::shared_ptr<Store> store;
  std::shared_ptr<Transport> transport;
  std::shared_ptr<Arena> arena;
  Buffer presence;
  absl::Duration timeout;
  std::vector<int> nodes;  // by rank of the world; any numbers
  std::int64_t segment_bytes = 0;
  bool may_map = false;  // peers' memory, where it can be
  std::map<Collective, const Schedule*> schedules;
  std::atomic<std::int64_t> next_channel{1};  // the world's is 0
  std::unique_ptr<Engine> engine;             // last: ends before the memory it uses
};

// Connects the transport and agrees with all ranks on version and options.
absl::StatusOr<std::shared_ptr<Runtime>> StartRuntime(const Bootstrap& bootstrap, std::unique_ptr<Transport> transport,
                                                      const CommunicatorOptions& options);

// For the plans of one group.
PlanOptions PlanOptionsOf(const Runtime& runtime, const Channel& channel);

// A cleared block of this rank, not yet known to the peers.
absl::StatusOr<Buffer> NewControlBlock(Arena& arena);

// What the ranks of a group must know of each other.
struct GroupMember {
  Rank world_rank = 0;
  std::uint32_t channel = 0;  // the group's number at that rank
  std::int64_t offset = 0;    // of that rank's control block in its arena
};

// The channel of a group; `members` are in group order, this rank is members[rank].
std::unique_ptr<Channel> OpenChannel(Runtime& runtime, Rank rank, const std::vector<GroupMember>& members,
                                     Buffer control);

}  // namespace tutti

#endif  // TUTTI_COMM_RUNTIME_H_
