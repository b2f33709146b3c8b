// A world whose ranks are threads of this process.
#ifndef TUTTI_TESTS_HARNESS_WORLD_H_
#define TUTTI_TESTS_HARNESS_WORLD_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/harness/rank_barrier.h"
#include "tutti/communicator.h"

namespace tutti {

struct WorldOptions {
  std::string transport = "inproc";  // "inproc" or "ucx"
  CommunicatorOptions communicator = {.timeout = absl::Seconds(60)};
  std::int64_t region_bytes = std::int64_t{1} << 30;
  bool on_devices = false;  // rank r uses device first_device + r of the fake CUDA, with the fake NCCL
  int first_device = 0;
  bool on_one_device = false;  // all ranks use device 0
  int ranks_per_node = 0;      // consecutive ranks that act as a node; 0: all ranks act as one
  // A function that wraps the transport of each rank before it is connected; null: transports stay as they are.
  std::function<std::unique_ptr<Transport>(Rank, std::unique_ptr<Transport>)> wrap = nullptr;
  // A function that a rank which cannot join calls with the reason; null: the test fails.
  std::function<void(Rank, const absl::Status&)> cannot_join = nullptr;
  // A barrier of all ranks, of one world only; null: none.
  RankBarrier* barrier = nullptr;
};

// Ranks with a fake GPU each.
inline WorldOptions OnDevices(int ranks_per_node = 0, RankBarrier* barrier = nullptr) {
  WorldOptions options;
  options.on_devices = true;
  options.ranks_per_node = ranks_per_node;
  options.barrier = barrier;
  return options;
}

// The transports of this build that ranks in threads can use.
std::vector<std::string> WorldTransports();

// Runs `body` on every rank that has joined a new world of `size` and returns when all have returned.
void RunWorld(int size, const WorldOptions& options, const std::function<void(Communicator&)>& body);
inline void RunWorld(int size, const std::function<void(Communicator&)>& body) { RunWorld(size, {}, body); }

// Runs `body` on every rank of a new world whose timeout is short, because the test waits for its end. A machine may be
// too slow to do in so little time what comes before: to join, and all whose end `body` gives to RankBarrier::AllOk.
// `body` returns where AllOk returns false, and after a DeadlineExceeded a new world gets twice the time.
void RunWorldWithLittleTime(int size, const WorldOptions& options,
                            const std::function<void(Communicator&, RankBarrier&)>& body);

// Takes all memory that the rank has left for Allocate, until the result is destroyed.
std::vector<Buffer> TakeFreeMemory(Communicator& world);

}  // namespace tutti

#endif  // TUTTI_TESTS_HARNESS_WORLD_H_
