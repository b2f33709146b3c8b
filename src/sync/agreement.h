// The agreement of all ranks on what a synchronizer is made from, before they make it.
#ifndef TUTTI_SYNC_AGREEMENT_H_
#define TUTTI_SYNC_AGREEMENT_H_

#include <string>

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

// `made` is OK when this rank has got the memory for its buckets. OK when all ranks have; otherwise an error on every
// rank, before anything runs on the buckets: ResourceExhausted, unless this rank or every rank made another mistake.
// Collective.
absl::Status AgreeOnMemory(Communicator& communicator, const Caller& caller, const absl::Status& made);

}  // namespace tutti

#endif  // TUTTI_SYNC_AGREEMENT_H_
