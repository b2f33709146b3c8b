#include "tutti/selector.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "plan/representative.h"
#include "plan/shared_beginning.h"
#include "tutti/cost_model.h"

namespace tutti {
namespace {

// The choices that a thread made last. An algorithm asks for the same choice when it checks a bucket, and when it
// writes the plan of each rank. No rank knows all counts of an all_to_all_v, so its choice depends on no count, and
// calls that differ in their counts alone have one choice.
class Memory {
 public:
  // `rival` is the schedule with which the schedule to be chosen competes, where there is one.
  const Schedule* Find(const CollectiveSpec& spec, int size, const PlanOptions& options,
                       const Schedule* rival = nullptr) const {
    const CollectiveSpec key = WithoutCounts(spec);
    for (const Choice& choice : choices_) {
      if (choice.schedule != nullptr && choice.rival == rival && choice.size == size && choice.spec == key &&
          choice.options.segment_bytes == options.segment_bytes &&
          choice.options.peers_mapped == options.peers_mapped &&
          choice.options.reads_processes == options.reads_processes && choice.options.nodes == options.nodes &&
          choice.options.native == options.native && choice.options.model() == options.model()) {
        return choice.schedule;
      }
    }
    return nullptr;
  }

  void Keep(const CollectiveSpec& spec, int size, const PlanOptions& options, const Schedule* schedule,
            const Schedule* rival = nullptr) {
    choices_[next_] = {
        .schedule = schedule, .rival = rival, .spec = WithoutCounts(spec), .size = size, .options = options};
    next_ = (next_ + 1) % choices_.size();
  }

 private:
  struct Choice {
    const Schedule* schedule = nullptr;
    const Schedule* rival = nullptr;
    CollectiveSpec spec;
    int size = 0;
    PlanOptions options;
  };

  static CollectiveSpec WithoutCounts(CollectiveSpec spec) {
    spec.send_counts.clear();
    spec.recv_counts.clear();
    return spec;
  }

  std::array<Choice, 8> choices_;
  std::size_t next_ = 0;
};

// The bytes of input and output together, of the rank that has most.
std::int64_t BufferBytes(const CollectiveSpec& spec, int size) {
  std::int64_t most = 0;
  for (const Rank rank : {0, size - 1, HasRoot(spec.collective) ? spec.root : 0}) {
    most = std::max(most, InputCount(spec, rank, size) + OutputCount(spec, rank, size));
  }
  return most * SizeOf(spec.dtype);
}

// The seconds for copying the longest buffers of a rank to memory that peers can map, and back. Like scratch, that
// memory is not the same in each call.
double StagingSeconds(const CollectiveSpec& spec, int size, const PlanOptions& options) {
  const CostModel& model = options.model();
  const double bytes_per_s = model.copy_bytes_per_s > 0 ? model.copy_bytes_per_s : model.memory_bytes_per_s;
  const double ranks_per_core = model.cores_per_node > 0 ? std::max(1.0, 1.0 * size / model.cores_per_node) : 1.0;
  const auto bytes = static_cast<double>(BufferBytes(spec, size));
  const double scratch = model.scratch_bytes_per_s > 0 ? bytes / model.scratch_bytes_per_s : 0;
  return std::max(2.0 * bytes / bytes_per_s, scratch) * ranks_per_core;  // every byte is read and written
}

bool Competes(const Candidate& candidate) { return candidate.refusal.ok(); }

std::vector<Candidate> CandidatesOf(const CollectiveSpec& spec, int size, const PlanOptions& options) {
  std::vector<Candidate> candidates;
  for (const Schedule* schedule : AllSchedules()) {
    if (schedule->collective != spec.collective) continue;
    const absl::Status supported =
        size < 1 ? absl::InvalidArgumentError("a world has at least 1 rank") : schedule->supports(spec, size, options);
    candidates.push_back({.schedule = schedule, .refusal = supported, .serves = supported.ok()});
  }
  return candidates;
}

// The candidates for buffers that peers can map; of schedules that do not compete there, the refusal says why.
std::vector<Candidate> CandidatesForMappedBuffers(const CollectiveSpec& spec, int size, const PlanOptions& options) {
  std::vector<Candidate> candidates = CandidatesOf(spec, size, options);
  for (Candidate& candidate : candidates) {
    if (!candidate.refusal.ok()) continue;
    if (!candidate.schedule->competes_for_mapped_buffers) {
      candidate.refusal = absl::FailedPreconditionError("the schedule is for buffers in memory that peers cannot map");
    } else if (candidate.schedule->competes != nullptr) {
      candidate.refusal = candidate.schedule->competes(spec, size, options);
    }
  }
  return candidates;
}

void Predict(std::vector<Candidate>& candidates, const CollectiveSpec& spec, int size, const PlanOptions& options) {
  for (Candidate& candidate : candidates) {
    if (!Competes(candidate)) continue;
    const absl::StatusOr<double> seconds = PredictSeconds(*candidate.schedule, spec, size, options);
    if (seconds.ok()) candidate.seconds = *seconds;
    candidate.refusal = seconds.status();
    candidate.serves = seconds.ok();
  }
}

absl::Status NoneServes(const Selection& selection, const CollectiveSpec& spec, int size) {
  return absl::UnimplementedError(
      absl::StrCat("no schedule serves ", ToString(spec), " on ", size, " ranks:\n", selection.reason()));
}

bool IsBetter(const Candidate& a, const Candidate& b) {
  return std::pair(!a.refusal.ok(), a.seconds) < std::pair(!b.refusal.ok(), b.seconds);
}

}  // namespace

std::string Selection::reason() const {
  std::string text;
  for (const Candidate& candidate : candidates) {
    absl::StrAppend(&text, candidate.schedule->name, ": ");
    if (candidate.refusal.ok()) {
      absl::StrAppendFormat(&text, "predicted %.2f µs, %s\n", candidate.seconds * 1e6, candidate.schedule->cost);
    } else {
      absl::StrAppend(&text, candidate.serves ? "does not compete, " : "refused, ", candidate.refusal.message(), "\n");
    }
  }
  return text;
}

absl::StatusOr<Selection> SelectSchedule(const CollectiveSpec& spec, int size, const PlanOptions& options) {
  Selection selection{.schedule = nullptr, .candidates = CandidatesForMappedBuffers(spec, size, options)};
  Predict(selection.candidates, spec, size, options);
  // Candidates with equal predictions stay in the order of their names.
  std::stable_sort(selection.candidates.begin(), selection.candidates.end(), IsBetter);
  if (selection.candidates.empty() || !Competes(selection.candidates[0])) return NoneServes(selection, spec, size);
  selection.schedule = selection.candidates[0].schedule;
  return selection;
}

absl::StatusOr<const Schedule*> ChooseSchedule(const CollectiveSpec& spec, int size, const PlanOptions& options) {
  thread_local Memory memory;
  if (const Schedule* known = memory.Find(spec, size, options); known != nullptr) return known;
  const std::vector<Candidate> candidates = CandidatesForMappedBuffers(spec, size, options);
  const auto first = std::find_if(candidates.begin(), candidates.end(), Competes);
  if (std::count_if(candidates.begin(), candidates.end(), Competes) == 1) return first->schedule;
  absl::StatusOr<Selection> selection = SelectSchedule(spec, size, options);
  if (!selection.ok()) return selection.status();
  memory.Keep(spec, size, options, selection->schedule);
  return selection->schedule;
}

// The least bytes that a rank reads from the process of a peer at once: fewer pass through scratch in less time.
constexpr std::int64_t kMinBytesOfProcess = 32 << 10;
// The least such bytes where ranks outnumber the processors of their node: no processor then waits for another rank's
// copies, and what a read costs beside its copy, in the kernel, is time that another rank does not have.
constexpr std::int64_t kMinBytesWhereCrowded = 1 << 20;
// The most ranks of a broadcast that reads the process of the root, where each rank has a processor. Through scratch
// the root copies its buffer once, and the others read at twice the speed: that takes longer where few read, and less
// processor time where many do.
constexpr int kMostRanksOfReadBroadcast = 4;

using BeginningOfPlans = StepId(const Plan& mapped, const Plan& other);

// Whether every rank can decide in the middle of a call whether it goes on with the plan of `mapped` or of `other`.
bool BeginAlike(const Schedule& mapped, const Schedule& other, const CollectiveSpec& spec, int size,
                const PlanOptions& options, BeginningOfPlans& beginning) {
  const CollectiveSpec call = Representative(spec, size);
  for (Rank rank = 0; rank < size; ++rank) {
    const absl::StatusOr<Plan> one = BuildPlan(mapped, call, rank, size, options);
    const absl::StatusOr<Plan> two = BuildPlan(other, call, rank, size, options);
    if (!one.ok() || !two.ok() || beginning(*one, *two) == 0) return false;
  }
  return true;
}

// The fastest of the candidates that `may_serve`, if it is predicted to take less than `least` seconds; else nullptr.
absl::StatusOr<const Schedule*> FastestOf(const std::vector<Candidate>& candidates, double least,
                                          const CollectiveSpec& spec, int size, const PlanOptions& options,
                                          absl::FunctionRef<bool(const Schedule&)> may_serve) {
  const Schedule* fastest = nullptr;
  for (const Candidate& candidate : candidates) {
    if (!candidate.serves || !may_serve(*candidate.schedule)) continue;
    const absl::StatusOr<double> seconds = PredictSeconds(*candidate.schedule, spec, size, options);
    if (!seconds.ok()) return seconds.status();
    if (*seconds >= least) continue;
    least = *seconds;
    fastest = candidate.schedule;
  }
  return fastest;
}

// The fastest of `candidates` that touches only scratch of peers; nullptr where whole copies of the buffers are
// predicted to take less time.
absl::StatusOr<const Schedule*> FastestThroughScratch(const Schedule& chosen, const std::vector<Candidate>& candidates,
                                                      const CollectiveSpec& spec, int size,
                                                      const PlanOptions& options) {
  // The blocks of an all_to_all_v may have any length. Another call that fits into one stage gains nothing from stages.
  const bool any_length = spec.collective == Collective::kAllToAllV;
  if (!any_length && BufferBytes(spec, size) / 2 <= options.segment_bytes) return nullptr;
  absl::StatusOr<double> least = std::numeric_limits<double>::infinity();
  if (!any_length) {
    least = PredictSeconds(chosen, spec, size, options);
    if (!least.ok()) return least.status();
    *least += StagingSeconds(spec, size, options);
  }
  return FastestOf(candidates, *least, spec, size, options, [&](const Schedule& schedule) {
    return schedule.touches_only_scratch_of_peers && BeginAlike(chosen, schedule, spec, size, options, SharedBeginning);
  });
}

// The fastest of `candidates` with ReadsProcesses; nullptr: none.
absl::StatusOr<const Schedule*> FastestReader(const Schedule& chosen, const std::vector<Candidate>& candidates,
                                              const CollectiveSpec& spec, int size, const PlanOptions& options) {
  return FastestOf(candidates, std::numeric_limits<double>::infinity(), spec, size, options,
                   [&](const Schedule& schedule) {
                     return ReadsProcesses(schedule, spec, size, options) &&
                            (schedule.competes == nullptr || schedule.competes(spec, size, options).ok()) &&
                            BeginAlike(chosen, schedule, spec, size, options, SharedBeginningOfReader);
                   });
}

bool ReadsProcesses(const Schedule& schedule, const CollectiveSpec& spec, int size, const PlanOptions& options) {
  if (!schedule.only_copies_from_peers || !options.reads_processes || !options.all_mapped()) return false;
  if (size == 1 || Reduces(spec.collective)) return false;
  const int processors = options.model().cores_per_node;
  const bool is_crowded = processors > 0 && size > processors;
  if (spec.collective == Collective::kBroadcast && (is_crowded || size > kMostRanksOfReadBroadcast)) return false;
  if (spec.collective == Collective::kAllToAllV) return true;
  // In a scatter each rank reads little, and the root is the only one that would copy to scratch.
  const bool takes_more = is_crowded && spec.collective != Collective::kScatter;
  return spec.count >= (takes_more ? kMinBytesWhereCrowded : kMinBytesOfProcess) / SizeOf(spec.dtype);
}

absl::StatusOr<const Schedule*> ChooseForPrivateBuffers(const Schedule& chosen, const CollectiveSpec& spec, int size,
                                                        const PlanOptions& options) {
  if (!options.all_mapped() || size == 1) return &chosen;
  thread_local Memory memory;
  if (const Schedule* known = memory.Find(spec, size, options, &chosen); known != nullptr) return known;
  const std::vector<Candidate> candidates = CandidatesOf(spec, size, options);
  absl::StatusOr<const Schedule*> found = FastestReader(chosen, candidates, spec, size, options);
  if (found.ok() && *found == nullptr) found = FastestThroughScratch(chosen, candidates, spec, size, options);
  if (!found.ok()) return found;
  const Schedule* const best = *found != nullptr ? *found : &chosen;
  memory.Keep(spec, size, options, best, &chosen);
  return best;
}

bool IsNativeChosen(const CollectiveSpec& spec, int size, const PlanOptions& options) {
  if (options.native.collectives.empty()) return false;
  const absl::StatusOr<const Schedule*> chosen = ChooseSchedule(spec, size, options);
  if (!chosen.ok()) return false;
  const absl::StatusOr<Plan> plan = BuildPlan(**chosen, spec, /*rank=*/0, size, options);
  return plan.ok() && std::any_of(plan->steps.begin(), plan->steps.end(),
                                  [](const Step& step) { return step.kind == StepKind::kNative; });
}

absl::Status CheckServed(const CollectiveSpec& spec, int size, const PlanOptions& options) {
  const Selection selection{.schedule = nullptr, .candidates = CandidatesForMappedBuffers(spec, size, options)};
  const bool served = std::any_of(selection.candidates.begin(), selection.candidates.end(), Competes);
  return served ? absl::OkStatus() : NoneServes(selection, spec, size);
}

void BuildSelected(PlanBuilder& builder) {
  // In a part of a plan the buffers of the root, and the blocks of an all_to_all_v, may lie anywhere, so that no peer
  // could name them.
  const Collective collective = builder.spec().collective;
  PlanOptions options = builder.options();
  options.peers_mapped &= !HasRoot(collective) && collective != Collective::kAllToAllV;
  const Schedule* schedule = *ChooseSchedule(builder.spec(), builder.size(), options);
  if (options.private_buffers) {
    options.reads_processes = false;  // the buffers of a part may be scratch, and others of the plan be touched besides
    schedule = *ChooseForPrivateBuffers(*schedule, builder.spec(), builder.size(), options);
  }
  BuildPart(*schedule, builder);
}

}  // namespace tutti
