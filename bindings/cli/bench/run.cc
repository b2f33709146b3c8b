#include "bindings/cli/bench/run.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "bindings/cli/bench/caller.h"
#include "bindings/cli/bench/memory.h"
#include "bindings/cli/bench/nccl/raw_nccl.h"
#include "bindings/cli/bench/rank.h"
#include "bindings/cli/pattern.h"
#include "bindings/cli/traffic.h"
#include "tutti/algorithm.h"
#include "tutti/native.h"
#include "tutti/schedule.h"

namespace tutti::cli {
namespace {

// The collective that is measured.
struct Subject {
  Traffic largest;
  const Schedule* schedule = nullptr;  // nullptr: the selector decides
};

absl::StatusOr<Subject> SubjectOf(const BenchOptions& options, Rank rank, int size) {
  absl::StatusOr<Traffic> largest =
      MakeBenchTraffic(options.collective, options.traffic, options.max_bytes, rank, size);
  if (!largest.ok()) return largest.status();
  Subject subject{.largest = *std::move(largest)};
  if (options.schedule.empty()) return subject;
  const absl::StatusOr<const Schedule*> schedule = FindSchedule(subject.largest.spec.collective, options.schedule);
  if (!schedule.ok()) return schedule.status();
  subject.schedule = *schedule;
  return subject;
}

// The options of plans, as far as they are known before ranks have met.
PlanOptions PlanOptionsOf(const BenchOptions& options) {
  PlanOptions plan{.peers_mapped = !options.messages && !options.on_device()};
  if (options.on_device()) plan.native = CollectivesOfNccl();
  return plan;
}

// OK where the schedule serves the call when all ranks are on one node, or when they are on several that have equally
// many ranks; otherwise the reason of the former.
absl::Status SupportsSomeNodes(const Schedule& schedule, const CollectiveSpec& spec, int ranks, PlanOptions plan) {
  const absl::Status on_one_node = schedule.supports(spec, ranks, plan);
  int places = 2;
  while (places < ranks && ranks % places != 0) ++places;
  for (Rank rank = 0; rank < ranks; ++rank) plan.nodes.push_back(rank / places);
  return schedule.supports(spec, ranks, plan).ok() ? absl::OkStatus() : on_one_node;
}

// The ranks find out together whether they can map memory, and which of them share a node. A schedule that needs mapped
// memory is refused here only when --messages or --device cuda rules mapping out.
absl::Status CheckSchedule(const Subject& subject, const BenchOptions& options, int ranks) {
  if (subject.schedule == nullptr || options.skips_unserved) return absl::OkStatus();
  const PlanOptions plan = PlanOptionsOf(options);
  absl::Status supported = SupportsSomeNodes(*subject.schedule, subject.largest.spec, ranks, plan);
  if (supported.ok()) return supported;
  std::vector<absl::string_view> valid;
  for (const Schedule* schedule : AllSchedules()) {
    const bool serves = schedule->collective == subject.schedule->collective &&
                        SupportsSomeNodes(*schedule, subject.largest.spec, ranks, plan).ok();
    if (serves) valid.push_back(schedule->name);
  }
  const absl::string_view cause = options.on_device() ? " (--device cuda)" : options.messages ? " (--messages)" : "";
  return absl::InvalidArgumentError(absl::StrCat("--schedule ", options.schedule, " of ", subject.largest.name, ": ",
                                                 supported.message(), cause, "; valid: ", absl::StrJoin(valid, ", ")));
}

// The sizes to measure. After 0 comes one element, since 0 times any factor is 0 again.
std::vector<std::int64_t> SizesOf(const BenchOptions& options) {
  std::vector<std::int64_t> sizes = {options.min_bytes};
  if (options.min_bytes == 0) sizes.push_back(SizeOf(options.traffic.dtype));
  while (sizes.back() <= options.max_bytes / options.factor) sizes.push_back(sizes.back() * options.factor);
  if (sizes.back() > options.max_bytes) sizes.pop_back();  // max_bytes is less than one element
  return sizes;
}

// The strategy whose exchange is the sum in messages of options.codec.
absl::StatusOr<Strategy> StrategyOf(const BenchOptions& options) {
  return ParseStrategy(absl::StrCat("bytegrad:average=false,hierarchical=false,codec=", options.codec));
}

absl::StatusOr<std::unique_ptr<BenchCaller>> MakeTuttiCaller(Communicator& communicator, const BenchOptions& options,
                                                             const Traffic& traffic, const CallOptions& call,
                                                             const BenchMemory& memory) {
  if (options.codec.empty()) {
    return std::make_unique<TuttiCaller>(communicator, traffic, call, options.memory_kind());
  }
  const absl::StatusOr<Strategy> strategy = StrategyOf(options);
  if (!strategy.ok()) return strategy.status();
  absl::StatusOr<BoundPlan> plan =
      communicator.Bind(*strategy, traffic.spec.dtype, traffic.count, /*round=*/0, {.out = memory.output(traffic)});
  if (!plan.ok()) return plan.status();
  return std::make_unique<CodecCaller>(*std::move(plan), options.codec, options.memory_kind());
}

// Whether calls of a size are in place: both, or the one that options ask for. Some collectives have no in-place form.
std::vector<bool> PlacesOf(const BenchOptions& options, Collective collective) {
  if (options.both_places && HasInPlaceForm(collective)) return {true, false};
  return {options.traffic.in_place};
}

// The calls of one case.
class CaseRun {
 public:
  // `nccl`: raw NCCL, to be measured beside Tutti; or null.
  CaseRun(Communicator& communicator, const BenchOptions& options, Subject subject, BenchMemory memory, RawNccl* nccl,
          const BenchReport& report)
      : communicator_(communicator),
        options_(options),
        subject_(std::move(subject)),
        memory_(std::move(memory)),
        report_(report),
        pattern_(options.traffic.dtype, options.traffic.op, communicator.size()),
        nccl_(nccl) {
    const CollectiveSpec& spec = subject_.largest.spec;
    if (Reduces(spec.collective)) {
      call_.factor = static_cast<double>(FactorOf(options.traffic.op, communicator.rank()));
    }
    call_.schedule = subject_.schedule;
    call_.caller_drives = true;
    if (nccl == nullptr) return;
    const absl::Status served = CheckRawNccl(spec.collective, spec.dtype, spec.op);
    if (served.ok()) return;
    Note(absl::StrCat(options.collective, " of NCCL is not measured: ", served.message()));
    nccl_ = nullptr;
  }

  absl::Status Measure() {
    const absl::StatusOr<std::vector<std::int64_t>> sizes = WholeSizes();
    if (!sizes.ok()) return sizes.status();
    for (const std::int64_t bytes : *sizes) {
      for (const bool in_place : PlacesOf(options_, subject_.largest.spec.collective)) {
        TrafficOptions place = options_.traffic;
        place.in_place = in_place;
        const absl::StatusOr<Traffic> traffic =
            MakeBenchTraffic(options_.collective, place, bytes, communicator_.rank(), communicator_.size());
        if (!traffic.ok()) return traffic.status();
        if (!IsServed(*traffic)) continue;
        if (absl::Status measured = MeasureCalls(*traffic); !measured.ok()) return measured;
      }
    }
    return absl::OkStatus();
  }

 private:
  // The sizes of calls, each once: two sizes may have the same number of whole elements, and a barrier has one size.
  absl::StatusOr<std::vector<std::int64_t>> WholeSizes() {
    std::vector<std::int64_t> sizes;
    for (const std::int64_t bytes : SizesOf(options_)) {
      const absl::StatusOr<Traffic> traffic =
          MakeBenchTraffic(options_.collective, options_.traffic, bytes, communicator_.rank(), communicator_.size());
      if (!traffic.ok()) return traffic.status();
      if (traffic->bytes() > 0 && traffic->bytes() != bytes) {
        Note("sizes are rounded down to whole elements, equally many for each rank, and at least one");
      }
      if (sizes.empty() || sizes.back() != traffic->bytes()) sizes.push_back(traffic->bytes());
    }
    return sizes;
  }

  void Note(const std::string& note) {
    if (communicator_.rank() == 0) report_.note(note);
  }

  // Whether the schedule serves a size, as is known since ranks have met; where it does not and may be left out.
  bool IsServed(const Traffic& traffic) {
    if (subject_.schedule == nullptr || !options_.skips_unserved) return true;
    const absl::Status served = subject_.schedule->supports(traffic.spec, communicator_.size(),
                                                            communicator_.plan_options(options_.memory_kind()));
    if (!served.ok() && unserved_ != served) {
      unserved_ = served;
      Note(absl::StrCat("schedule ", options_.schedule, " of ", traffic.name, " is not measured: ", served.message()));
    }
    return served.ok();
  }

  absl::Status MeasureCalls(const Traffic& traffic) {
    absl::StatusOr<std::unique_ptr<BenchCaller>> tutti =
        MakeTuttiCaller(communicator_, options_, traffic, call_, memory_);
    if (!tutti.ok()) return tutti.status();
    std::vector<BenchCaller*> callers = {tutti->get()};
    std::optional<RawNcclCaller> raw;
    if (nccl_ != nullptr) callers.push_back(&raw.emplace(*nccl_, traffic, call_.factor, communicator_.timeout()));
    const absl::StatusOr<std::vector<BenchRow>> rows =
        BenchRank(communicator_, options_, pattern_, memory_, traffic, call_).Measure(callers);
    if (!rows.ok()) return rows.status();
    for (const BenchRow& row : *rows) {
      if (communicator_.rank() == 0) report_.row(row);
    }
    return absl::OkStatus();
  }

  Communicator& communicator_;
  const BenchOptions& options_;
  const Subject subject_;
  BenchMemory memory_;
  const BenchReport& report_;
  Pattern pattern_;
  CallOptions call_;
  RawNccl* nccl_;
  absl::Status unserved_;  // of the last size that was left out
};

absl::Status RunCase(Communicator& communicator, const BenchOptions& options, RawNccl* nccl,
                     const BenchReport& report) {
  absl::StatusOr<Subject> subject = SubjectOf(options, communicator.rank(), communicator.size());
  if (!subject.ok()) return subject.status();
  absl::StatusOr<BenchMemory> memory = BenchMemory::Allocate(communicator, options, subject->largest);
  if (!memory.ok()) return memory.status();
  return CaseRun(communicator, options, *std::move(subject), *std::move(memory), nccl, report).Measure();
}

absl::Status CheckCodecFlag(const BenchOptions& options, int ranks) {
  if (options.codec.empty()) return absl::OkStatus();
  const auto refuse = [&](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("--codec ", options.codec, ": ", why));
  };
  const absl::StatusOr<Strategy> strategy = StrategyOf(options);
  if (!strategy.ok()) return refuse(strategy.status().message());
  const bool sums = options.collective == Name(Collective::kAllReduce) && options.traffic.op == ReduceOp::kSum;
  if (!sums) return refuse("messages of codecs are measured in all_reduce with the op sum");
  if (!options.schedule.empty()) return refuse("such a sum has no schedule to choose; leave --schedule out");
  if (!options.traffic.in_place) return refuse("such a sum is in place; leave --out-of-place out");
  const CollectiveSpec bucket = {.collective = Collective::kAllReduce,
                                 .dtype = options.traffic.dtype,
                                 .count = options.max_bytes / SizeOf(options.traffic.dtype),
                                 .in_place = true};
  const absl::Status served = strategy->algorithm->supports(*strategy, bucket, ranks, PlanOptionsOf(options));
  return served.ok() ? served : refuse(served.message());
}

absl::Status CheckDeviceFlags(const BenchOptions& options) {
  if (!options.on_device()) {
    if (options.peer.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("--peer ", options.peer, ": NCCL works on the memory of GPUs; add --device cuda"));
  }
  if (options.collective == Name(Collective::kBarrier)) {
    return absl::InvalidArgumentError("--device cuda: a barrier has no buffers, and is one of the host; leave it out");
  }
  if (options.buffers == "private") {
    return absl::InvalidArgumentError("--buffers private: memory of GPUs is of one kind; leave --buffers out");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckBench(const BenchOptions& options, int ranks) {
  if (absl::Status flags = CheckDeviceFlags(options); !flags.ok()) return flags;
  if (absl::Status codec = CheckCodecFlag(options, ranks); !codec.ok()) return codec;
  const absl::StatusOr<Subject> subject = SubjectOf(options, 0, ranks);
  if (!subject.ok()) return subject.status();
  if (options.check && Reduces(subject->largest.spec.collective)) {
    absl::Status exact = CheckExact(options.traffic.dtype, options.traffic.op, ranks);
    if (!exact.ok()) return exact;
  }
  return CheckSchedule(*subject, options, ranks);
}

absl::Status RunBench(Communicator& communicator, absl::Span<const BenchOptions> cases, int repeats,
                      const BenchReport& report) {
  std::unique_ptr<RawNccl> nccl;
  if (!cases.empty() && !cases.front().peer.empty()) {
    const absl::StatusOr<NcclSoftware> software = NcclOfThisProcess();
    if (!software.ok()) return software.status();
    absl::StatusOr<std::unique_ptr<RawNccl>> connected =
        RawNccl::Connect(*software, communicator, communicator.timeout());
    if (!connected.ok()) return connected.status();
    nccl = *std::move(connected);
  }
  for (int repeat = 1; repeat <= repeats; ++repeat) {
    const auto numbered = [&](BenchRow row) {
      row.repeat = repeat;
      report.row(row);
    };
    for (const BenchOptions& one : cases) {
      absl::Status status = RunCase(communicator, one, nccl.get(), {numbered, report.note});
      if (!status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

}  // namespace tutti::cli
