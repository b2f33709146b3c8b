// Ranks as threads of this process.
#ifndef TUTTI_TESTS_HARNESS_WORLD_H_
#define TUTTI_TESTS_HARNESS_WORLD_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tutti/communicator.h"

namespace tutti {

struct WorldOptions {
  std::string transport = "inproc";  // or "ucx"
  CommunicatorOptions communicator = {.timeout = absl::Seconds(60)};
  std::int64_t region_bytes = std::int64_t{1} << 30;
  int ranks_per_node = 0;  // so many ranks act as a node; 0: all do
  // What the rank's transport becomes before it is connected; null: it stays.
  std::function<std::unique_ptr<Transport>(Rank, std::unique_ptr<Transport>)> wrap = nullptr;
};

// The transports of this build that ranks in threads can use.
std::vector<std::string> WorldTransports();

// Runs `body` on every rank of a new world of `size` and returns when all have returned. A rank that cannot join fails
// the test with its error.
void RunWorld(int size, const WorldOptions& options, const std::function<void(Communicator&)>& body);
inline void RunWorld(int size, const std::function<void(Communicator&)>& body) { RunWorld(size, {}, body); }

}  // namespace tutti

#endif  // TUTTI_TESTS_HARNESS_WORLD_H_
