#include "bindings/cli/bench/rank.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/median.h"
#include "base/processor_line.h"
#include "bindings/cli/bench/percentile.h"
#include "bindings/cli/bench/places.h"
#include "bindings/cli/bench/wanted_processor.h"
#include "tutti/rounding.h"
#include "tutti/schedule.h"
#include "tutti/selector.h"

namespace tutti::cli {
namespace {

// Bounds on the timed calls of one size, equal to those of bench/peers/mpi_collectives.c.
constexpr double kMinCalls = 5;
constexpr double kMaxCalls = 20000;
// Batches of warm-up calls double until a batch takes this share of the time for timed calls, equal to that of
// bench/peers/mpi_collectives.c: the first calls of a program take far longer than later ones, and few of them say
// little about how many calls fit into the time. A batch of kMaxCalls says enough, as no more calls are timed.
constexpr double kWarmUpShare = 0.1;
// The options of calls that are not measured.
constexpr CallOptions kOwnCall{.schedule = &kSelectorsChoice};
// The time in line for a processor of a rank whose kernel does not tell.
constexpr std::int64_t kUnknown = -1;

BenchRank::Used UsedSoFar(const Communicator& communicator) {
  rusage usage = {};
  ::getrusage(RUSAGE_THREAD, &usage);
  const Counters counters = communicator.counters();
  return {.preempted = usage.ru_nivcsw,
          .slept = usage.ru_nvcsw,
          .engine_cpu_ns = absl::ToInt64Nanoseconds(counters.engine_cpu),
          .engine_waiting_ns = absl::ToInt64Nanoseconds(counters.engine_waiting)};
}

// Whether the selector has chosen `schedule` of a collective, and neither --schedule nor TUTTI_SCHEDULE names it: a
// schedule that is named for memory of another kind does not serve the calls.
bool SelectorChose(const BenchOptions& options, Collective collective, absl::string_view schedule) {
  const absl::StatusOr<std::map<Collective, const Schedule*>> all_named = ParseSchedules(LoadConfig()->schedule);
  const auto named = all_named->find(collective);
  return options.schedule.empty() && (named == all_named->end() || named->second->name != schedule);
}

// The root in the spec of a message is its other end.
std::optional<Rank> RootOf(const CollectiveSpec& spec) {
  const bool has_one = HasRoot(spec.collective) && !IsPointToPoint(spec.collective);
  return has_one ? std::optional(spec.root) : std::nullopt;
}

double Gigabytes(std::int64_t bytes, double microseconds) {
  return microseconds > 0 ? static_cast<double>(bytes) / microseconds / 1e3 : 0;
}

}  // namespace

absl::Status BenchRank::Call(BenchCaller& caller) {
  absl::Status made = caller.Enqueue(memory_.input(traffic_), memory_.output(traffic_));
  made.Update(caller.Wait());
  return made;
}

absl::Status BenchRank::WriteInput() {
  const std::int64_t count = traffic_.input_count();
  return memory_.Write(memory_.input(traffic_), count * element_,
                       [&](std::byte* here) { pattern_.Write(traffic_.rank, 0, count, here); });
}

absl::Status BenchRank::Check(BenchCaller& caller, std::int64_t& wrong) {
  constexpr int kPoison = 0x5A;
  const std::int64_t bytes = traffic_.output_count() * element_;
  std::byte* const output = memory_.output(traffic_);
  absl::Status status = memory_.Write(
      output, bytes, [&](std::byte* here) { std::memset(here, kPoison, static_cast<std::size_t>(bytes)); });
  if (status.ok()) status = WriteInput();
  if (status.ok()) status = Meet();
  if (status.ok()) status = Call(caller);
  return status.ok() ? CountWrong(caller, wrong) : status;
}

absl::Status BenchRank::CountWrong(const BenchCaller& caller, std::int64_t& wrong) {
  const std::byte* const output = memory_.output(traffic_);
  const std::int64_t bytes = traffic_.output_count() * element_;
  if (caller.codec().empty()) {
    return memory_.Read(output, bytes, [&](const std::byte* here) {
      for (const Piece& piece : traffic_.expected()) {
        wrong += pattern_.CountWrong(piece.source, piece.first, piece.count, here + piece.at * element_);
      }
    });
  }
  std::vector<std::byte> mine(static_cast<std::size_t>(bytes));
  absl::Status read = memory_.Read(
      output, bytes, [&](const std::byte* here) { std::memcpy(mine.data(), here, static_cast<std::size_t>(bytes)); });
  if (!read.ok()) return read;
  std::vector<std::byte> first = mine;
  absl::Status told = communicator_.Broadcast(first.data(), first.data(), bytes, DType::kU8, 0, kOwnCall).Wait();
  const auto element = static_cast<std::size_t>(element_);
  for (std::size_t at = 0; at < mine.size(); at += element) {
    wrong += std::memcmp(mine.data() + at, first.data() + at, element) != 0;
  }
  return told;
}

absl::Status BenchRank::Meet() {
  return communicator_.Barrier({.schedule = &kSelectorsChoice, .caller_drives = true}).Wait();
}

absl::Status BenchRank::PrepareCall() {
  if (!options_.prepares_calls()) return absl::OkStatus();
  if (options_.rewrite) {
    if (absl::Status written = WriteInput(); !written.ok()) return written;
  }
  absl::SleepFor(absl::Seconds(options_.pause));
  return Meet();
}

absl::Status BenchRank::TimeWindow(Measured& measured) {
  if (absl::Status prepared = PrepareCall(); !prepared.ok()) return prepared;
  const std::byte* const in = memory_.input(traffic_);
  std::byte* const out = memory_.output(traffic_);
  const std::int64_t in_line = line_ != nullptr ? line_->Nanos() : 0;
  const std::int64_t start = MonotonicNanos();
  for (int i = 0; i < measured.window; ++i) {
    if (absl::Status made = measured.caller->Enqueue(in, out); !made.ok()) return made;
  }
  const std::int64_t made = MonotonicNanos();
  if (absl::Status ended = measured.caller->Wait(); !ended.ok()) return ended;
  measured.times.push_back(MonotonicNanos() - start);
  measured.host_total += made - start;
  if (line_ != nullptr) measured.in_line.push_back(in_line < 0 ? kUnknown : line_->Nanos() - in_line);
  return absl::OkStatus();
}

absl::Status BenchRank::TimeWindows(int windows) {
  for (Measured& one : measured_) {
    one.times.clear();
    one.host_total = 0;
    one.in_line.clear();
    one.times.reserve(static_cast<std::size_t>(windows));
    one.in_line.reserve(static_cast<std::size_t>(windows));
  }
  const std::size_t callers = measured_.size();
  const Used before = UsedSoFar(communicator_);
  for (std::size_t turn = 0; turn < static_cast<std::size_t>(windows) * callers; ++turn) {
    // Each caller is the first one equally often.
    if (absl::Status timed = TimeWindow(measured_[(turn + turn / callers) % callers]); !timed.ok()) return timed;
  }
  const Used after = UsedSoFar(communicator_);
  used_ = {.preempted = after.preempted - before.preempted,
           .slept = after.slept - before.slept,
           .engine_cpu_ns = after.engine_cpu_ns - before.engine_cpu_ns,
           .engine_waiting_ns = after.engine_waiting_ns - before.engine_waiting_ns};
  return absl::OkStatus();
}

template <typename T>
absl::Status BenchRank::ReduceOverRanks(std::vector<T>& values, DType dtype, ReduceOp op) {
  return communicator_
      .AllReduce(values.data(), values.data(), static_cast<std::int64_t>(values.size()), dtype, op, kOwnCall)
      .Wait();
}

absl::StatusOr<double> BenchRank::TimeOfBatch(int windows) {
  if (absl::Status timed = TimeWindows(windows); !timed.ok()) return timed;
  std::vector<double> time = {0};
  for (const std::int64_t window : measured_.front().times) {
    time[0] += static_cast<double>(window) / 1e9 + options_.pause;
  }
  if (absl::Status agreed = ReduceOverRanks(time, DType::kF64, ReduceOp::kMax); !agreed.ok()) return agreed;
  return time[0];
}

absl::StatusOr<int> BenchRank::WarmUp() {
  const int window = measured_.front().window;
  const int least = options_.calls > 0 ? 0 : 1;  // without --iters warm-up calls tell how many calls fit
  int batch = std::max(least, DivideRoundingUp(options_.warm_ups, window));
  absl::StatusOr<double> time = TimeOfBatch(batch);
  if (!time.ok()) return time.status();
  if (options_.calls > 0) return DivideRoundingUp(options_.calls, window);
  while (*time < options_.min_time * kWarmUpShare && batch * window < kMaxCalls) {
    time = TimeOfBatch(batch *= 2);
    if (!time.ok()) return time.status();
  }
  return static_cast<int>(std::clamp(options_.min_time / *time * batch, kMinCalls, kMaxCalls / window));
}

absl::Status BenchRank::TimeCalls() {
  const absl::StatusOr<int> windows = WarmUp();
  if (!windows.ok()) return windows.status();
  // The timed calls sum zeros: repeated in-place sums of anything else would grow to infinity.
  const std::int64_t bytes = traffic_.input_count() * element_;
  absl::Status status = memory_.Write(memory_.input(traffic_), bytes, [bytes](std::byte* here) {
    std::memset(here, 0, static_cast<std::size_t>(bytes));
  });
  if (status.ok()) status = Meet();
  if (status.ok()) status = TimeWindows(*windows);
  // The buffer is the struct itself, four numbers of 64 bits.
  static_assert(sizeof(used_) == 4 * sizeof(std::int64_t));
  if (status.ok()) status = communicator_.AllReduce(&used_, &used_, 4, DType::kI64, ReduceOp::kSum, kOwnCall).Wait();
  for (Measured& one : measured_) {
    const std::vector<std::int64_t> own = one.times;
    std::vector<std::int64_t> totals = {std::accumulate(own.begin(), own.end(), std::int64_t{0}), one.host_total};
    if (status.ok()) status = ReduceOverRanks(totals, DType::kI64, ReduceOp::kMax);
    one.total = totals[0];
    one.host_total = totals[1];
    if (status.ok()) status = ReduceOverRanks(one.times, DType::kI64, ReduceOp::kMax);
    if (status.ok()) status = GatherLongest(one, own);
    if (status.ok() && line_ != nullptr) status = GatherInLine(one);
  }
  return status;
}

absl::Status BenchRank::GatherLongest(Measured& measured, const std::vector<std::int64_t>& own) {
  const auto longest = std::max_element(measured.times.begin(), measured.times.end());
  measured.longest = static_cast<std::size_t>(longest - measured.times.begin());
  measured.of_ranks.resize(static_cast<std::size_t>(communicator_.size()));
  return communicator_.AllGather(&own[measured.longest], measured.of_ranks.data(), 1, DType::kI64, kOwnCall).Wait();
}

absl::Status BenchRank::GatherInLine(Measured& measured) {
  measured.in_line_of_ranks.resize(static_cast<std::size_t>(communicator_.size()));
  absl::Status status =
      communicator_
          .AllGather(&measured.in_line[measured.longest], measured.in_line_of_ranks.data(), 1, DType::kI64, kOwnCall)
          .Wait();
  if (status.ok()) status = ReduceOverRanks(measured.in_line, DType::kI64, ReduceOp::kMax);
  return status;
}

std::optional<ProcessorWaits> BenchRank::WaitsOf(const Measured& measured) const {
  const std::vector<std::int64_t>& of_ranks = measured.in_line_of_ranks;
  if (of_ranks.empty() || absl::c_linear_search(of_ranks, kUnknown)) return std::nullopt;
  const double median = MedianOf({measured.times.begin(), measured.times.end()});
  std::vector<std::size_t> longest_first(measured.times.size());
  std::iota(longest_first.begin(), longest_first.end(), std::size_t{0});
  std::stable_sort(longest_first.begin(), longest_first.end(),
                   [&](std::size_t a, std::size_t b) { return measured.times[a] > measured.times[b]; });
  longest_first.resize(std::max<std::size_t>(longest_first.size() / 100, 1));
  const auto in_line = [&](std::size_t call) {
    return WantedProcessor(static_cast<double>(measured.in_line[call]), static_cast<double>(measured.times[call]),
                           median);
  };
  const auto most = std::max_element(of_ranks.begin(), of_ranks.end());
  return ProcessorWaits{
      .rank = static_cast<Rank>(most - of_ranks.begin()),
      .longest_us = static_cast<double>(*most) / 1e3,
      .slow_calls = static_cast<int>(longest_first.size()),
      .slow_calls_in_line = static_cast<int>(std::count_if(longest_first.begin(), longest_first.end(), in_line))};
}

absl::StatusOr<double> BenchRank::Predict(std::string name) {
  CollectiveSpec spec = traffic_.spec;
  if (spec.collective == Collective::kSend) {
    // send_recv ends when the message of the rank before has come; its Send may end earlier.
    spec.collective = Collective::kRecv;
    spec.root = traffic_.previous();
    name = "message";
  }
  const absl::StatusOr<const Schedule*> schedule = FindSchedule(spec.collective, name);
  if (!schedule.ok()) return schedule.status();
  const absl::StatusOr<double> seconds =
      PredictSeconds(**schedule, spec, traffic_.size, communicator_.plan_options(options_.memory_kind()));
  if (!seconds.ok()) return seconds.status();
  return *seconds * 1e6;
}

absl::StatusOr<BenchRow> BenchRank::RowOf(Measured& measured) {
  const std::optional<ProcessorWaits> waits = WaitsOf(measured);  // before the times lose the order of the calls
  std::sort(measured.times.begin(), measured.times.end());
  const std::size_t windows = measured.times.size();
  const auto of_a_call = [&](auto nanoseconds) { return static_cast<double>(nanoseconds) / 1e3 / measured.window; };
  const auto mean_of = [&](std::int64_t total) {
    return of_a_call(static_cast<double>(total) / static_cast<double>(windows));
  };
  const double mean = mean_of(measured.total);
  const auto percentile = [&](std::size_t per_mille) { return of_a_call(PercentileOf(measured.times, per_mille)); };
  // The engine's threads work for all callers, which make equally many calls.
  const double calls_of_all_ranks =
      static_cast<double>(windows) * static_cast<double>(measured_.size()) * measured.window * traffic_.size;
  const auto [fastest, slowest] = std::minmax_element(measured.of_ranks.begin(), measured.of_ranks.end());
  BenchRow row = {.collective = traffic_.name,
                  .library = std::string(measured.caller->library()),
                  .schedule = "",
                  .schedule_chosen = false,
                  .codec = measured.caller->codec(),
                  .transport = std::string(communicator_.transport()),
                  .ranks = traffic_.size,
                  .places = PlacesOf(communicator_.plan_options(options_.memory_kind()).nodes, traffic_.size),
                  .bytes = traffic_.bytes(),
                  .count = traffic_.count,
                  .dtype = traffic_.spec.dtype,
                  .op = Reduces(traffic_.spec.collective) ? std::string(Name(traffic_.spec.op)) : "none",
                  .root = RootOf(traffic_.spec),
                  .time_us = mean,
                  .p50_us = of_a_call(MedianOf({measured.times.begin(), measured.times.end()})),
                  .p90_us = percentile(900),
                  .p95_us = percentile(950),
                  .p99_us = percentile(990),
                  .p99_9_us = percentile(999),
                  .max_us = of_a_call(measured.times.back()),
                  .longest_call = static_cast<int>(measured.longest) * measured.window + 1,
                  .slowest_rank = static_cast<Rank>(slowest - measured.of_ranks.begin()),
                  .fastest_rank = static_cast<Rank>(fastest - measured.of_ranks.begin()),
                  .fastest_us = of_a_call(*fastest),
                  .waits = waits,
                  .preempted = used_.preempted,
                  .slept = used_.slept,
                  .engine_cpu_us = static_cast<double>(used_.engine_cpu_ns) / 1e3 / calls_of_all_ranks,
                  .engine_waiting_us = static_cast<double>(used_.engine_waiting_ns) / 1e3 / calls_of_all_ranks,
                  .host_us = options_.on_device() ? mean_of(measured.host_total) : 0,
                  .algbw_gb_s = Gigabytes(traffic_.bytes(), mean),
                  .busbw_gb_s = Gigabytes(traffic_.bytes(), mean) * traffic_.bus_factor(),
                  .wrong = measured.wrong,
                  .device = options_.device,
                  .buffers = options_.on_device() ? "device" : options_.buffers,
                  .messages = options_.messages,
                  .rewrite = options_.rewrite,
                  .pause_s = options_.pause,
                  .in_place = traffic_.spec.in_place,
                  .repeat = 1,
                  .calls = static_cast<int>(windows) * measured.window,
                  .predicted_us = 0};
  if (row.library != "tutti" || !row.codec.empty()) return row;
  const absl::StatusOr<Plan> plan =
      communicator_.PlanFor(traffic_.spec, call_, options_.buffers == "private", options_.memory_kind());
  if (!plan.ok()) return plan.status();
  row.schedule = plan->name.substr(plan->name.find(':') + 1);
  row.schedule_chosen = SelectorChose(options_, traffic_.spec.collective, row.schedule);
  // The selector predicts an all_to_all_v of other blocks than these: see PredictSeconds.
  if (traffic_.spec.collective == Collective::kAllToAllV) return row;
  const absl::StatusOr<double> predicted = Predict(row.schedule);
  if (!predicted.ok()) return predicted.status();
  row.predicted_us = *predicted;
  return row;
}

absl::Status BenchRank::CheckAll() {
  for (Measured& one : measured_) {
    if (absl::Status checked = Check(*one.caller, one.wrong); !checked.ok()) return checked;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<BenchRow>> BenchRank::Measure(absl::Span<BenchCaller* const> callers) {
  measured_.clear();
  line_.reset();
  if (options_.latency && !options_.on_device()) line_ = std::make_shared<const ProcessorLine>();
  for (BenchCaller* const caller : callers) {
    const bool in_windows = options_.on_device() && !options_.prepares_calls();
    measured_.push_back({.caller = caller, .window = in_windows ? caller->most_calls() : 1});
  }
  absl::Status status;
  if (options_.check) status = CheckAll();
  if (status.ok()) status = TimeCalls();
  if (status.ok() && options_.check) status = CheckAll();
  std::vector<BenchRow> rows;
  for (Measured& one : measured_) {
    std::vector<std::int64_t> wrong = {one.wrong};
    if (status.ok() && options_.check) status = ReduceOverRanks(wrong, DType::kI64, ReduceOp::kSum);
    if (!status.ok()) return status;
    one.wrong = options_.check ? wrong[0] : -1;
    absl::StatusOr<BenchRow> row = RowOf(one);
    if (!row.ok()) return row.status();
    rows.push_back(*std::move(row));
  }
  return rows;
}

}  // namespace tutti::cli
