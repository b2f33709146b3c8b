#include "plan/registry.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <set>
#include <string>
#include <utility>

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

// What a synchronizer can do in a step.
constexpr std::pair<Exchanges, Phase> kSteps[] = {
    {Exchanges::kGradients, Phase::kBackward},
    {Exchanges::kMomentum, Phase::kBackward},
    {Exchanges::kWeights, Phase::kForward},
    {Exchanges::kWeights, Phase::kAfterStep},
    {Exchanges::kWeightDifferences, Phase::kAfterStep},
    {Exchanges::kWeights, Phase::kBackground},
};

std::string FaultOfStep(const Algorithm& algorithm) {
  if (std::find(std::begin(kSteps), std::end(kSteps), std::pair(algorithm.exchanges, algorithm.phase)) !=
      std::end(kSteps)) {
    return "";
  }
  const auto append_step = [](std::string* out, const std::pair<Exchanges, Phase>& step) {
    absl::StrAppend(out, Name(step.first), ": ", Name(step.second));
  };
  return absl::StrCat("exchanges ", Name(algorithm.exchanges), " do not go with phase ", Name(algorithm.phase),
                      "; valid: ", absl::StrJoin(kSteps, ", ", append_step));
}

// Finds a field that is there although it means nothing, or is missing although it is needed: a field that goes with
// one kind of algorithm.
std::string FaultOfPresence(const Algorithm& algorithm) {
  struct Field {
    absl::string_view name;
    bool is_there;
    bool is_needed;
    absl::string_view goes_with;
  };
  const bool background = algorithm.phase == Phase::kBackground;
  const bool momentum = algorithm.exchanges == Exchanges::kMomentum;
  for (const Field& field : {Field{"background", algorithm.background != nullptr, background, "phase background"},
                             Field{"optimizer", !algorithm.optimizer.empty(), momentum, "exchanges momentum"}}) {
    if (field.is_there == field.is_needed) continue;
    return absl::StrCat("field ", field.name, " is ", field.is_there ? "given" : "missing", "; it must be there with ",
                        field.goes_with, ", and only there");
  }
  const bool has_rounds = algorithm.rounds != nullptr || algorithm.round_of != nullptr;
  if (has_rounds && (background || algorithm.exchanges == Exchanges::kGradients)) {
    return absl::StrCat("field ", algorithm.rounds != nullptr ? "rounds" : "round_of", " is given; with ",
                        background ? "phase background" : "exchanges gradients",
                        " there is one round, which always runs: leave the field out");
  }
  return "";
}

std::string FaultOfOptions(const Algorithm& algorithm) {
  std::set<absl::string_view> taken;
  if (!algorithm.codec.empty()) {
    taken.insert("codec");
    for (const AlgorithmOption& option : CodecOptionTable()) taken.insert(option.name);
  }
  for (std::size_t i = 0; i < algorithm.options.size(); ++i) {
    const AlgorithmOption& option = algorithm.options[i];
    const std::string which = absl::StrCat("options[", i, "] ");
    if (!IsName(option.name)) {
      return absl::StrCat(which, "is named '", option.name, "'; a name has lower-case letters, digits and _");
    }
    if (!taken.insert(option.name).second) {
      return absl::StrCat(which, "is named ", option.name,
                          ", as another option or one of codecs; give it another name");
    }
    if (option.check == nullptr) {
      return absl::StrCat(which, option.name, " has no check; CheckListed and CheckPositive serve most options");
    }
  }
  return "";
}

// The field of a record that breaks the record's contract, and what would be right; empty: no such field can be seen.
template <class Record>
std::string FaultOf(const Record& /*record*/) {
  return "";
}
std::string FaultOf(const Algorithm& algorithm) {
  for (const auto fault_of : {FaultOfStep, FaultOfPresence, FaultOfOptions}) {
    std::string fault = fault_of(algorithm);
    if (!fault.empty()) return fault;
  }
  return "";
}

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
    if (const std::string fault = FaultOf(*record); !fault.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("the record of ", what, ": ", fault));
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
