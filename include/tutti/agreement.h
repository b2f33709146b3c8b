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

// Compares fields over all ranks; InvalidArgument, the same on every rank, names the rank and the field that differ.
// `mistake`: what this rank found wrong in its own arguments. It is compared too, as the field "arguments": a rank that
// is wrong takes part, for its peers would wait for it. One that all ranks have made is returned as it is. Collective,
// on one thread at a time; the same name may be used again and again.
absl::Status Agree(Communicator& communicator, absl::string_view name, AgreementFields fields,
                   const absl::Status& mistake = absl::OkStatus());

}  // namespace tutti

#endif  // TUTTI_AGREEMENT_H_
