// Ranks as threads of this process.
#ifndef TUTTI_BINDINGS_CLI_LOCAL_RANKS_H_
#define TUTTI_BINDINGS_CLI_LOCAL_RANKS_H_

#include <functional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "tutti/communicator.h"

namespace tutti::cli {

// The most ranks that one process gets: each has threads and shared memory of its own.
inline constexpr int kMaxLocalRanks = 1024;

// Calls `body` on every rank of a new world, each in a thread and with the options that `options_of` gives it, over the
// transport "inproc", or else the one that TUTTI_TRANSPORT names; returns when all have returned, with the first error
// in rank order: of those that are no mere consequence of another rank's, if any, else of those that are Unavailable.
// ResourceExhausted when the system starts no more threads; no `body` has then begun. Over "inproc" `ranks_per_node`
// consecutive ranks act as a node; 0: all ranks do.
absl::Status RunLocalRanks(int ranks, absl::string_view transport,
                           const std::function<CommunicatorOptions(Rank)>& options_of,
                           const std::function<absl::Status(Communicator&)>& body, int ranks_per_node = 0);

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_LOCAL_RANKS_H_
