// What the ranks of an adapter must have in common, compared before there is a synchronizer to do it.
#ifndef TUTTI_TORCH_AGREEMENT_H_
#define TUTTI_TORCH_AGREEMENT_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "tutti/bootstrap.h"
#include "tutti/communicator.h"
#include "tutti/torch/errors.h"

namespace tutti::nn {

// Throws on every rank, naming a rank and a field, unless `fields` are equal on all ranks and `mistake`, which this
// rank found in its own arguments, is none. Collective: a rank that is wrong takes part, for its peers would wait for
// it.
inline void AgreeOrThrow(Communicator& communicator, std::vector<std::pair<std::string, std::string>> fields,
                         const absl::Status& mistake) {
  fields.emplace_back("arguments", mistake.ok() ? "right" : std::string(mistake.message()));
  const absl::Status agreed = CheckAgreement(communicator.store(), "torch", communicator.rank(), communicator.size(),
                                             fields, absl::Now() + communicator.timeout());
  if (!agreed.ok() && !absl::IsInvalidArgument(agreed)) ThrowIfError(agreed);
  // The name is free again once every rank has left.
  ThrowIfError(communicator.Barrier({.caller_drives = true}).Wait());
  ThrowIfError(agreed);
  ThrowIfError(mistake);
}

}  // namespace tutti::nn

#endif  // TUTTI_TORCH_AGREEMENT_H_
