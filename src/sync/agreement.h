// The agreement of all ranks on what a synchronizer is made from, before they make it.
#ifndef TUTTI_SYNC_AGREEMENT_H_
#define TUTTI_SYNC_AGREEMENT_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "sync/caller.h"
#include "tutti/communicator.h"
#include "tutti/synchronizer.h"

namespace tutti {

// Compares everything that the buckets of a synchronizer, and their plans, are made from. Collective.
absl::Status AgreeOnParameters(Communicator& communicator, absl::Span<const Parameter> parameters,
                               const SynchronizerOptions& options, absl::string_view strategy,
                               const absl::Status& mistake);

// OK when all ranks have got the memory for their buckets, `made` on this rank; otherwise ResourceExhausted, or the
// other mistake of a rank, which all ranks return before anything runs on the buckets. Collective.
absl::Status AgreeOnMemory(Communicator& communicator, const Caller& caller, const absl::Status& made);

}  // namespace tutti

#endif  // TUTTI_SYNC_AGREEMENT_H_
