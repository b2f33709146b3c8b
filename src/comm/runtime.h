// What a communicator shares with the communicators split from it: the transport, the arena and the engine.
#ifndef TUTTI_COMM_RUNTIME_H_
#define TUTTI_COMM_RUNTIME_H_

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "comm/gpu_transport_choice.h"
#include "comm/plan_cache.h"
#include "engine/channel.h"
#include "engine/control_block.h"
#include "engine/engine.h"
#include "engine/lent_memory.h"
#include "engine/stream_device.h"
#include "memory/arena.h"
#include "tutti/bootstrap.h"
#include "tutti/communicator.h"
#include "tutti/cost_model.h"
#include "tutti/native_transport.h"
#include "tutti/transport.h"

namespace tutti {

struct Runtime {
  Runtime() = default;
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  // Registers the plan cache of a communicator, whose idle memory goes back to the arena when the arena is full.
  void Register(PlanCache* cache);
  void Unregister(PlanCache* cache);
  // Frees what this rank keeps in its arena and does not need.
  void Reclaim();

  std::shared_ptr<Store> store;
  std::shared_ptr<Transport> transport;
  std::shared_ptr<Arena> arena;
  Buffer presence;
  std::shared_ptr<LentMemory> lent;
  std::shared_ptr<ControlBlocks> blocks;
  absl::Duration timeout;
  std::vector<int> nodes;                       // by rank of the world; any numbers
  std::shared_ptr<const CostModel> cost_model;  // equal on all ranks
  std::optional<bool> measures_links;           // TUTTI_MEASURE_LINKS
  std::int64_t segment_bytes = 0;
  bool reads_processes = false;  // whether every rank can read the processes of the other ranks on its node
  bool may_map = false;          // whether plans may map the memory of peers on the same node
  std::map<Collective, const Schedule*> schedules;
  // The GPU of this rank; nullopt: the rank has none.
  std::optional<StreamDevice> device;
  const NativeTransportMaker* native = nullptr;  // of NCCL; null where there is none
  GpuTransportChoice gpu_transport;              // where `device` is set; equal on all ranks
  std::shared_ptr<Engine> engine;                // stopped before the memory that the engine uses is freed

 private:
  Mutex caches_mutex_;
  std::vector<PlanCache*> caches_ TUTTI_GUARDED_BY(caches_mutex_);
};

// Tell the ranks that set a communicator up with `bootstrap` that this one will not, because of `cause`: they end with
// Unavailable at once (StayAway). FailSetUp is for a rank that has met no other yet, FailAgreement for one that has
// made its transport, or could not. Both return `cause`.
absl::Status FailSetUp(const Bootstrap& bootstrap, absl::Status cause);
absl::Status FailAgreement(const Bootstrap& bootstrap, absl::Status cause);

// Connects the transport and agrees with all ranks on version and options. A rank that fails before it has met the
// others tells them so.
absl::StatusOr<std::shared_ptr<Runtime>> StartRuntime(const Bootstrap& bootstrap, std::unique_ptr<Transport> transport,
                                                      const CommunicatorOptions& options);

// The options for the plans of one group, on the memory of the host, and on that of GPUs.
PlanOptions PlanOptionsOf(const Runtime& runtime, const Channel& channel);
PlanOptions PlanOptionsOnDevice(const Runtime& runtime, const PlanOptions& on_host);

// What the ranks of a group must know of each other.
struct GroupMember {
  Rank world_rank = 0;
  std::uint32_t channel = 0;     // the group's number at that rank
  std::int64_t offset = 0;       // where that rank's control block lies in its arena
  std::uint64_t generation = 0;  // the generation of that control block
};

// The channel of a group; `members` are in group order, this rank is members[rank], with a block that runtime.blocks
// has opened.
std::unique_ptr<Channel> OpenChannel(Runtime& runtime, Rank rank, const std::vector<GroupMember>& members);
// Gives `channel` what it needs on the GPU, where this rank has one; `store` is the group's, in which the ranks tell
// how they meet. Collective.
absl::Status OpenOnDevice(const Runtime& runtime, Channel& channel, Store& store);

}  // namespace tutti

#endif  // TUTTI_COMM_RUNTIME_H_
