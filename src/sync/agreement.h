// What all ranks must have in common before they make a synchronizer.
#ifndef TUTTI_SYNC_AGREEMENT_H_
#define TUTTI_SYNC_AGREEMENT_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tutti/communicator.h"
#include "tutti/synchronizer.h"

namespace tutti {

// Agrees on everything that the buckets of a synchronizer, and their plans, are made from.
absl::Status AgreeOnParameters(Communicator& communicator, absl::Span<const Parameter> parameters,
                               const SynchronizerOptions& options, absl::string_view strategy,
                               const absl::Status& mistake);

}  // namespace tutti

#endif  // TUTTI_SYNC_AGREEMENT_H_
