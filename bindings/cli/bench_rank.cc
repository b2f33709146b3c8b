#include "bindings/cli/bench_rank.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tutti/schedule.h"
#include "tutti/selector.h"

namespace tutti::cli {
namespace {

// Bounds on the timed calls of one size, equal to those of bench/peers/mpi_collectives.c.
constexpr double kMinCalls = 5;
constexpr double kMaxCalls = 20000;
// Batches of warm-up calls double until a batch takes this share of the time for timed calls, equal to that of
// bench/peers/mpi_collectives.c: the first calls of a program take far longer than later ones, and few of them say
// little about how many calls fit into the time.
constexpr double kWarmUpShare = 0.1;

std::int64_t Now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

double Gigabytes(std::int64_t bytes, double microseconds) {
  return microseconds > 0 ? static_cast<double>(bytes) / microseconds / 1e3 : 0;
}

double Microseconds(std::int64_t nanoseconds) { return static_cast<double>(nanoseconds) / 1e3; }

}  // namespace

absl::Status BenchRank::Call() {
  std::byte* const in = memory_.input(traffic_);
  std::byte* const out = memory_.output(traffic_);
  if (traffic_.spec.collective != Collective::kSend) return communicator_.Call(traffic_.spec, in, out, call_).Wait();
  const CollectiveSpec& spec = traffic_.spec;
  const Rank from = (traffic_.rank + traffic_.size - 1) % traffic_.size;
  Work recv = communicator_.Recv(out, spec.count, spec.dtype, from, {.schedule = nullptr, .caller_drives = true});
  Work send = communicator_.Send(in, spec.count, spec.dtype, spec.root, call_);
  const absl::Status received = recv.Wait();
  return received.ok() ? send.Wait() : received;
}

void BenchRank::WriteInput() { pattern_.Write(traffic_.rank, 0, traffic_.input_count(), memory_.input(traffic_)); }

absl::Status BenchRank::Check(std::int64_t& wrong) {
  constexpr int kPoison = 0x5A;
  const std::int64_t element = SizeOf(traffic_.spec.dtype);
  std::memset(memory_.output(traffic_), kPoison, static_cast<std::size_t>(traffic_.output_count() * element));
  WriteInput();
  if (absl::Status met = Meet(); !met.ok()) return met;
  if (absl::Status called = Call(); !called.ok()) return called;
  for (const Piece& piece : traffic_.expected()) {
    wrong += pattern_.CountWrong(piece.source, piece.first, piece.count, memory_.output(traffic_) + piece.at * element);
  }
  return absl::OkStatus();
}

absl::Status BenchRank::Meet() { return communicator_.Barrier({.caller_drives = true}).Wait(); }

absl::StatusOr<std::int64_t> BenchRank::TimedCall() {
  if (options_.rewrite) {
    WriteInput();
    if (absl::Status met = Meet(); !met.ok()) return met;
  }
  const std::int64_t start = Now();
  if (absl::Status called = Call(); !called.ok()) return called;
  return Now() - start;
}

template <typename T>
absl::Status BenchRank::ReduceOverRanks(std::vector<T>& values, DType dtype, ReduceOp op) {
  return communicator_.AllReduce(values.data(), values.data(), static_cast<std::int64_t>(values.size()), dtype, op)
      .Wait();
}

absl::StatusOr<double> BenchRank::TimeOfBatch(int calls) {
  std::vector<double> time = {0};
  for (int i = 0; i < calls; ++i) {
    const absl::StatusOr<std::int64_t> one = TimedCall();
    if (!one.ok()) return one.status();
    time[0] += static_cast<double>(*one) / 1e9;
  }
  if (absl::Status agreed = ReduceOverRanks(time, DType::kF64, ReduceOp::kMax); !agreed.ok()) return agreed;
  return time[0];
}

absl::StatusOr<int> BenchRank::WarmUp() {
  int batch = options_.warm_ups;
  absl::StatusOr<double> time = TimeOfBatch(batch);
  if (!time.ok()) return time.status();
  if (options_.calls > 0) return options_.calls;
  while (*time < options_.min_time * kWarmUpShare) {
    time = TimeOfBatch(batch *= 2);
    if (!time.ok()) return time.status();
  }
  return static_cast<int>(std::clamp(options_.min_time / *time * batch, kMinCalls, kMaxCalls));
}

absl::StatusOr<std::vector<std::int64_t>> BenchRank::TimeCalls() {
  const absl::StatusOr<int> calls = WarmUp();
  if (!calls.ok()) return calls.status();
  // The timed calls sum zeros: repeated in-place sums of anything else would grow to infinity.
  std::memset(memory_.input(traffic_), 0,
              static_cast<std::size_t>(traffic_.input_count() * SizeOf(traffic_.spec.dtype)));
  std::vector<std::int64_t> times(static_cast<std::size_t>(*calls));
  if (absl::Status met = Meet(); !met.ok()) return met;
  for (std::int64_t& time : times) {
    const absl::StatusOr<std::int64_t> timed = TimedCall();
    if (!timed.ok()) return timed.status();
    time = *timed;
  }
  if (absl::Status reduced = ReduceOverRanks(times, DType::kI64, ReduceOp::kMax); !reduced.ok()) return reduced;
  return times;
}

absl::StatusOr<double> BenchRank::Predict(const std::string& name) {
  const absl::StatusOr<const Schedule*> schedule = FindSchedule(traffic_.spec.collective, name);
  if (!schedule.ok()) return schedule.status();
  const absl::StatusOr<double> seconds =
      PredictSeconds(**schedule, traffic_.spec, traffic_.size, communicator_.plan_options());
  if (!seconds.ok()) return seconds.status();
  return *seconds * 1e6;
}

absl::StatusOr<BenchRow> BenchRank::Measure() {
  std::vector<std::int64_t> wrong = {0};
  if (options_.check) {
    if (absl::Status checked = Check(wrong[0]); !checked.ok()) return checked;
  }
  absl::StatusOr<std::vector<std::int64_t>> times = TimeCalls();
  if (!times.ok()) return times.status();
  if (options_.check) {
    if (absl::Status checked = Check(wrong[0]); !checked.ok()) return checked;
    if (absl::Status summed = ReduceOverRanks(wrong, DType::kI64, ReduceOp::kSum); !summed.ok()) return summed;
  }
  std::sort(times->begin(), times->end());
  const std::size_t calls = times->size();
  const double median = Microseconds((*times)[calls / 2]);
  const absl::StatusOr<Plan> plan = communicator_.PlanFor(traffic_.spec, call_, options_.buffers == "private");
  if (!plan.ok()) return plan.status();
  const std::string schedule = plan->name.substr(plan->name.find(':') + 1);
  const absl::StatusOr<double> predicted = Predict(schedule);
  if (!predicted.ok()) return predicted.status();
  return BenchRow{.collective = traffic_.name,
                  .schedule = schedule,
                  .transport = std::string(communicator_.transport()),
                  .ranks = traffic_.size,
                  .bytes = traffic_.bytes(),
                  .count = traffic_.count,
                  .dtype = traffic_.spec.dtype,
                  .op = Reduces(traffic_.spec.collective) ? std::string(Name(traffic_.spec.op)) : "none",
                  .p50_us = median,
                  .p99_us = Microseconds((*times)[calls * 99 / 100]),
                  .max_us = Microseconds(times->back()),
                  .algbw_gb_s = Gigabytes(traffic_.bytes(), median),
                  .busbw_gb_s = Gigabytes(traffic_.bytes(), median) * traffic_.bus_factor(),
                  .wrong = options_.check ? wrong[0] : -1,
                  .buffers = options_.buffers,
                  .rewrite = options_.rewrite,
                  .in_place = traffic_.spec.in_place,
                  .calls = static_cast<int>(calls),
                  .predicted_us = *predicted};
}

namespace {

bool IsReduction(const std::string& name) {
  const absl::StatusOr<Collective> collective = ParseCollective(name);
  return collective.ok() && Reduces(*collective);
}

// The benchmarks that were asked for.
std::vector<std::string> NamesOf(const BenchOptions& options) {
  if (options.collective != "all") return {options.collective};
  std::vector<std::string> names = BenchNames();
  if (!HasOp(options.traffic.dtype, ReduceOp::kSum)) {  // elements of this type can only be moved
    names.erase(std::remove_if(names.begin(), names.end(), IsReduction), names.end());
  }
  return names;
}

// What is measured of one collective.
struct Subject {
  Traffic largest;
  const Schedule* schedule = nullptr;  // nullptr: the selector decides
};

absl::StatusOr<Subject> SubjectOf(const std::string& name, const BenchOptions& options, Rank rank, int size) {
  absl::StatusOr<Traffic> largest = MakeBenchTraffic(name, options.traffic, options.max_bytes, rank, size);
  if (!largest.ok()) return largest.status();
  Subject subject{.largest = *std::move(largest)};
  if (options.schedule.empty()) return subject;
  const absl::StatusOr<const Schedule*> schedule = FindSchedule(subject.largest.spec.collective, options.schedule);
  if (!schedule.ok()) return schedule.status();
  subject.schedule = *schedule;
  return subject;
}

// The ranks find out together whether they can map memory. A schedule that needs mapped memory is refused here only
// when --messages rules mapping out.
absl::Status CheckSchedule(const Subject& subject, const BenchOptions& options, int ranks) {
  if (subject.schedule == nullptr) return absl::OkStatus();
  const PlanOptions plan{.peers_mapped = !options.messages};
  absl::Status supported = subject.schedule->supports(subject.largest.spec, ranks, plan);
  if (supported.ok()) return supported;
  std::vector<absl::string_view> valid;
  for (const Schedule* schedule : AllSchedules()) {
    const bool serves = schedule->collective == subject.schedule->collective &&
                        schedule->supports(subject.largest.spec, ranks, plan).ok();
    if (serves) valid.push_back(schedule->name);
  }
  return absl::InvalidArgumentError(absl::StrCat("--schedule ", options.schedule, " of ", subject.largest.name, ": ",
                                                 supported.message(), options.messages ? " (--messages)" : "",
                                                 "; valid: ", absl::StrJoin(valid, ", ")));
}

// The sizes to measure. After 0 comes one element, since 0 times any factor is 0 again.
std::vector<std::int64_t> SizesOf(const BenchOptions& options) {
  std::vector<std::int64_t> sizes = {options.min_bytes};
  if (options.min_bytes == 0) sizes.push_back(SizeOf(options.traffic.dtype));
  while (sizes.back() <= options.max_bytes / options.factor) sizes.push_back(sizes.back() * options.factor);
  if (sizes.back() > options.max_bytes) sizes.pop_back();  // max_bytes is less than one element
  return sizes;
}

absl::Status RunCollective(Communicator& communicator, const BenchOptions& options, const std::string& name,
                           const std::function<void(const BenchRow&)>& report) {
  const Rank rank = communicator.rank();
  const int size = communicator.size();
  const absl::StatusOr<Subject> subject = SubjectOf(name, options, rank, size);
  if (!subject.ok()) return subject.status();
  const bool reduces = Reduces(subject->largest.spec.collective);
  const std::int64_t factor = reduces ? FactorOf(options.traffic.op, rank) : 1;
  const CallOptions call{.schedule = subject->schedule, .caller_drives = true, .factor = static_cast<double>(factor)};
  const Pattern pattern(options.traffic.dtype, options.traffic.op, size);
  const absl::StatusOr<BenchMemory> memory = BenchMemory::Allocate(communicator, options, subject->largest);
  if (!memory.ok()) return memory.status();
  for (const std::int64_t bytes : SizesOf(options)) {
    const absl::StatusOr<Traffic> traffic = MakeBenchTraffic(name, options.traffic, bytes, rank, size);
    if (!traffic.ok()) return traffic.status();
    const absl::StatusOr<BenchRow> row = BenchRank(communicator, options, pattern, *memory, *traffic, call).Measure();
    if (!row.ok()) return row.status();
    if (rank == 0) report(*row);
    if (subject->largest.bytes() == 0) break;  // a barrier: larger sizes are the same
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckBench(const BenchOptions& options, int ranks) {
  if (options.check) {
    absl::Status exact = CheckExact(options.traffic.dtype, options.traffic.op, ranks);
    if (!exact.ok()) return exact;
  }
  for (const std::string& name : NamesOf(options)) {
    const absl::StatusOr<Subject> subject = SubjectOf(name, options, 0, ranks);
    if (!subject.ok()) return subject.status();
    if (absl::Status serves = CheckSchedule(*subject, options, ranks); !serves.ok()) return serves;
  }
  return absl::OkStatus();
}

absl::Status RunBench(Communicator& communicator, const BenchOptions& options,
                      const std::function<void(const BenchRow&)>& report) {
  for (const std::string& name : NamesOf(options)) {
    if (absl::Status status = RunCollective(communicator, options, name, report); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace tutti::cli
