#include "plan/registry.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "tutti/version.h"

namespace tutti::internal {
namespace {

bool IsName(absl::string_view name) {
  return !name.empty() && absl::ascii_islower(name[0]) && std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '_';
  });
}

bool IsComplete(const Schedule& schedule) { return schedule.supports != nullptr && schedule.build != nullptr; }
bool IsComplete(const Codec& codec) {
  return codec.largest_error != nullptr && codec.validate != nullptr && codec.encoded_bytes != nullptr &&
         codec.encode != nullptr && codec.decode != nullptr;
}
bool IsComplete(const Algorithm& algorithm) { return algorithm.supports != nullptr && algorithm.build != nullptr; }
bool IsComplete(const PeerSelection& selection) { return selection.rounds != nullptr && selection.mix != nullptr; }

constexpr absl::string_view kFunctionsOfSchedule = "supports, build";
constexpr absl::string_view kFunctionsOfCodec = "largest_error, validate, encoded_bytes, encode, decode";
constexpr absl::string_view kFunctionsOfAlgorithm = "supports, build";
constexpr absl::string_view kFunctionsOfPeerSelection = "rounds, mix";

// Checks records of an extension against each other and those that are there, and adds what they are to `names`.
template <class Record>
absl::Status CheckRecords(absl::string_view kind, absl::string_view functions, absl::Span<const Record* const> records,
                          absl::Span<const Record* const> there, std::set<std::string>& names) {
  std::set<std::string> taken;
  for (const Record* record : there) taken.insert(FullName(*record));
  for (const Record* record : records) {
    const std::string what = absl::StrCat(kind, " ", FullName(*record));
    if (!IsName(record->name)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the ", kind, " named '", record->name, "' needs a name of lower-case letters, digits and _, such as mine"));
    }
    if (!IsComplete(*record)) {
      return absl::InvalidArgumentError(
          absl::StrCat("the record of ", what, " lacks a function; it must have: ", functions));
    }
    if (!taken.insert(FullName(*record)).second) {
      return absl::AlreadyExistsError(absl::StrCat("there is a ", what, " already; give this one another name"));
    }
    names.insert(what);
  }
  return absl::OkStatus();
}

absl::Status InExtension(const Extension& extension, const absl::Status& status) {
  return {status.code(), absl::StrCat("extension ", extension.name, ": ", status.message())};
}

}  // namespace

absl::Status CheckVersion(absl::string_view built_with) {
  if (built_with == Version()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("it was built with Tutti ", built_with, ", and this is Tutti ",
                                                    Version(), ": build the extension again, with this one"));
}

absl::Status Registry::Register(const Extension& extension) {
  const MutexLock lock(mutex_);
  if (absl::Status version = CheckVersion(extension.tutti_version); !version.ok()) {
    return InExtension(extension, version);
  }
  if (sealed_) {
    return InExtension(extension, absl::FailedPreconditionError(
                                      "this process has made a communicator already, and its ranks choose among what "
                                      "they had then: register extensions before"));
  }
  std::set<std::string> names;
  absl::Status status = CheckRecords("schedule", kFunctionsOfSchedule, extension.schedules, schedules.all(), names);
  status.Update(CheckRecords("codec", kFunctionsOfCodec, extension.codecs, codecs.all(), names));
  status.Update(CheckRecords("algorithm", kFunctionsOfAlgorithm, extension.algorithms, algorithms.all(), names));
  status.Update(CheckRecords("peer selection", kFunctionsOfPeerSelection, extension.peer_selections,
                             peer_selections.all(), names));
  if (status.ok() && names.empty()) {
    status = absl::InvalidArgumentError("it has no schedule, codec, algorithm or peer selection");
  }
  if (!status.ok()) return InExtension(extension, status);
  schedules.Add(extension.schedules);
  codecs.Add(extension.codecs);
  algorithms.Add(extension.algorithms);
  peer_selections.Add(extension.peer_selections);
  names_.merge(names);
  return absl::OkStatus();
}

absl::Status Registry::status() const {
  const MutexLock lock(mutex_);
  return status_;
}

std::string Registry::names() const {
  const MutexLock lock(mutex_);
  return absl::StrJoin(names_, ", ");
}

absl::Status Registry::Seal() {
  const MutexLock lock(mutex_);
  sealed_ = true;
  return status_;
}

void Registry::Refuse(const absl::Status& error) {
  const MutexLock lock(mutex_);
  status_.Update(error);
}

}  // namespace tutti::internal
