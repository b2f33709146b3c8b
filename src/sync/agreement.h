// What all ranks must have in common before they exchange anything.
#ifndef TUTTI_SYNC_AGREEMENT_H_
#define TUTTI_SYNC_AGREEMENT_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tutti/communicator.h"
#include "tutti/synchronizer.h"

namespace tutti {

// Compares named fields over all ranks; InvalidArgument, the same on every rank, names the rank and the field that
// differ. Collective; the same name may be used again and again.
absl::Status Agree(Communicator& communicator, absl::string_view name,
                   const std::vector<std::pair<std::string, std::string>>& fields);

// A field that tells the others of a mistake that this rank found in its own arguments.
std::pair<std::string, std::string> ArgumentsField(const absl::Status& mistake);

// Agrees on everything that the buckets of a synchronizer, and their plans, are made from.
absl::Status AgreeOnParameters(Communicator& communicator, absl::Span<const Parameter> parameters,
                               const SynchronizerOptions& options, absl::string_view strategy,
                               const absl::Status& mistake);

}  // namespace tutti

#endif  // TUTTI_SYNC_AGREEMENT_H_
