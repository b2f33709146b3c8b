// Ranks as threads of this process.
#ifndef TUTTI_BINDINGS_CLI_LOCAL_RANKS_H_
#define TUTTI_BINDINGS_CLI_LOCAL_RANKS_H_

#include <functional>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "tutti/communicator.h"

namespace tutti::cli {

// Calls `body` on every rank of a new world, each in a thread, over the transport "inproc", or else the one that
// TUTTI_TRANSPORT names; returns when all have returned, with the first error in rank order (one that is no mere
// consequence of another's, if any).
absl::Status RunLocalRanks(int ranks, absl::string_view transport, const CommunicatorOptions& options,
                           const std::function<absl::Status(Communicator&)>& body);

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_LOCAL_RANKS_H_
