#include "sync/agreement.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tutti/agreement.h"
#include "tutti/bootstrap.h"

namespace tutti {

absl::Status Agree(Communicator& communicator, absl::string_view name, AgreementFields fields,
                   const absl::Status& mistake) {
  // First, for what else differs follows from it.
  fields.emplace(fields.begin(), "arguments", mistake.ok() ? "right" : std::string(mistake.message()));
  absl::Status agreed = CheckAgreement(communicator.store(), name, communicator.rank(), communicator.size(), fields,
                                       absl::Now() + communicator.timeout());
  if (!agreed.ok() && !absl::IsInvalidArgument(agreed)) return agreed;
  // The name is free again once every rank has left.
  if (absl::Status left = communicator.Barrier({.caller_drives = true}).Wait(); !left.ok()) return left;
  return agreed.ok() ? mistake : agreed;
}

absl::Status AgreeOnParameters(Communicator& communicator, absl::Span<const Parameter> parameters,
                               const SynchronizerOptions& options, absl::string_view strategy,
                               const absl::Status& mistake) {
  AgreementFields fields = {
      {"version", TUTTI_VERSION},
      {"strategy", std::string(strategy)},
      {"bucket_bytes", absl::StrCat(options.bucket_bytes)},
      {"first_bucket_bytes", absl::StrCat(options.first_bucket_bytes)},
      {"allow_unused", options.allow_unused ? "true" : "false"},
      {"parameters", absl::StrCat(parameters.size())},
  };
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& p = parameters[i];
    fields.emplace_back(absl::StrCat("parameter[", i, "]"),
                        absl::StrCat(p.name, " ", Name(p.dtype), " ", p.shape, " (", p.count, " elements)"));
  }
  return Agree(communicator, "synchronizer", std::move(fields), mistake);
}

}  // namespace tutti
