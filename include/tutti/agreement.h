// What all ranks must have in common before they exchange anything.
#ifndef TUTTI_AGREEMENT_H_
#define TUTTI_AGREEMENT_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "tutti/communicator.h"

namespace tutti {

using AgreementFields = std::vector<std::pair<std::string, std::string>>;  // name, value

// Compares `fields` over all ranks. Collective. InvalidArgument, the same on every rank, names the rank and the field
// that differ, or the rank that has the fields of rank 0 in another order. FailedPrecondition, the same on every rank,
// names a rank that compares fields under another `name`, because that rank makes another call. Other errors are those
// of the communicator. `mistake` is an error that this rank found in its own arguments: such a rank takes part all the
// same, because its peers wait for it. Mistakes are compared too, as the field "arguments"; one that all ranks have
// made is returned as it is. `call` holds the options of the collectives that carry the comparison.
absl::Status Agree(Communicator& communicator, absl::string_view name, AgreementFields fields,
                   const absl::Status& mistake = absl::OkStatus(), const CallOptions& call = {});

}  // namespace tutti

#endif  // TUTTI_AGREEMENT_H_
