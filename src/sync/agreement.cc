#include "sync/agreement.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "comm/agreement_fields.h"
#include "sync/bucket_memory.h"
#include "sync/hash.h"
#include "tutti/agreement.h"
#include "tutti/schedule.h"

namespace tutti {

namespace {

// `bytes` of every rank, in rank order.
absl::StatusOr<std::vector<char>> Gather(Communicator& communicator, const void* mine, std::int64_t bytes,
                                         const CallOptions& call) {
  std::vector<char> all(static_cast<std::size_t>(bytes * communicator.size()));
  const absl::Status gathered = communicator.AllGather(mine, all.data(), bytes, DType::kU8, call).Wait();
  if (!gathered.ok()) return gathered;
  return all;
}

// FailedPrecondition where ranks have come here from different calls: `lists` are the packed fields of all ranks, whose
// first field is the name of the agreement.
absl::Status CompareNames(absl::Span<const std::string> lists) {
  const std::string of_rank_0 = FirstValue(lists[0]);
  for (std::size_t rank = 1; rank < lists.size(); ++rank) {
    const std::string name = FirstValue(lists[rank]);
    if (name == of_rank_0) continue;
    return absl::FailedPreconditionError(absl::StrCat("the ranks make different calls: rank ", rank, " is in '", name,
                                                      "', rank 0 in '", of_rank_0, "'"));
  }
  return absl::OkStatus();
}

}  // namespace

// The agreement goes over the communicator, not over the store, because a rank that waits in a collective sees at once
// that a peer has died, has left or makes another call.
absl::Status Agree(Communicator& communicator, absl::string_view name, AgreementFields fields,
                   const absl::Status& mistake, const CallOptions& call) {
  CallOptions driven = call;
  driven.caller_drives = true;
  if (driven.schedule == nullptr) driven.schedule = &kSelectorsChoice;
  // These two fields come first, because differences in later fields may follow from a difference in these.
  fields.emplace(fields.begin(), "arguments", mistake.ok() ? "right" : std::string(mistake.message()));
  fields.emplace(fields.begin(), "agreement", std::string(name));
  std::string packed = PackFields(fields);

  struct Summary {
    std::uint64_t hash;
    std::int64_t bytes;
    bool operator==(const Summary&) const = default;
  };
  const Summary mine = {Hash(packed), static_cast<std::int64_t>(packed.size())};
  const absl::StatusOr<std::vector<char>> gathered = Gather(communicator, &mine, sizeof(mine), driven);
  if (!gathered.ok()) return gathered.status();
  std::vector<Summary> summaries(static_cast<std::size_t>(communicator.size()));
  std::memcpy(summaries.data(), gathered->data(), gathered->size());
  if (std::count(summaries.begin(), summaries.end(), mine) == communicator.size()) return mistake;

  // All ranks have compared the same summaries, so all come here, unless the communicator has failed.
  std::int64_t longest = 0;
  for (const Summary& summary : summaries) longest = std::max(longest, summary.bytes);
  packed.resize(static_cast<std::size_t>(longest));
  const absl::StatusOr<std::vector<char>> texts = Gather(communicator, packed.data(), longest, driven);
  if (!texts.ok()) return texts.status();
  std::vector<std::string> lists;
  for (std::size_t rank = 0; rank < summaries.size(); ++rank) {
    lists.emplace_back(texts->data() + rank * static_cast<std::size_t>(longest),
                       static_cast<std::size_t>(summaries[rank].bytes));
  }
  if (absl::Status other_calls = CompareNames(lists); !other_calls.ok()) return other_calls;
  absl::Status differ = CompareFields(name, lists);
  if (!differ.ok()) return differ;
  const auto reordered = std::find_if(lists.begin(), lists.end(), [&](const auto& list) { return list != lists[0]; });
  return absl::InvalidArgumentError(absl::StrCat("agreement '", name, "': rank ", reordered - lists.begin(),
                                                 " has the fields of rank 0 in another order"));
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
      {"autotune", options.autotune ? "true" : "false"},
      {"memory", Name(options.memory)},
      {"parameters", absl::StrCat(parameters.size())},
  };
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& p = parameters[i];
    fields.emplace_back(absl::StrCat("parameter[", i, "]"),
                        absl::StrCat(p.name, " ", Name(p.dtype), " ", p.shape, " (", p.count, " elements)"));
  }
  return Agree(communicator, "synchronizer", std::move(fields), mistake);
}

absl::Status AgreeOnMemory(Communicator& communicator, const Caller& caller, const absl::Status& made) {
  absl::Status on_all = Agree(communicator, "memory of an exchange", {}, made, caller.Sign(Purpose::kState, 0, {}));
  const bool ranks_differ = absl::IsInvalidArgument(on_all) && communicator.status().ok();
  if (!ranks_differ || absl::IsInvalidArgument(made)) return on_all;
  return absl::ResourceExhaustedError(on_all.message());
}

}  // namespace tutti
