#include "tutti/synchronizer.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "sync/agreement.h"
#include "sync/buckets.h"
#include "sync/ready_counters.h"
#include "sync/state.h"
#include "tutti/algorithm.h"

namespace tutti {
namespace {

// A bucket with everything its steps need: nothing is allocated or looked up after creation.
struct Bucket {
  std::shared_ptr<Buffer> gradients;
  Buffer state;
  BoundPlan plan;
  Work work;
  std::int64_t launched_ns = 0;
  std::int64_t wire_bytes = 0;
};

absl::StatusOr<Buffer> AllocateZeroed(Communicator& communicator, std::int64_t bytes) {
  absl::StatusOr<Buffer> buffer = communicator.Allocate(bytes);
  if (buffer.ok() && bytes > 0) std::memset(buffer->data(), 0, static_cast<std::size_t>(bytes));
  return buffer;
}

absl::StatusOr<Bucket> MakeBucket(Communicator& communicator, const Strategy& strategy, const BucketLayout& layout) {
  absl::StatusOr<Plan> plan = BuildPlan(strategy, layout.dtype, layout.count, communicator.rank(), communicator.size(),
                                        communicator.plan_options());
  if (!plan.ok()) return plan.status();
  absl::StatusOr<Buffer> gradients = AllocateZeroed(communicator, layout.count * SizeOf(layout.dtype));
  if (!gradients.ok()) return gradients.status();
  absl::StatusOr<Buffer> state = AllocateZeroed(communicator, plan->state_bytes);
  if (!state.ok()) return state.status();

  Bucket bucket;
  bucket.gradients = std::make_shared<Buffer>(*std::move(gradients));
  bucket.state = *std::move(state);
  bucket.wire_bytes = WireBytes(*plan);
  absl::StatusOr<BoundPlan> bound = communicator.Bind(
      *std::move(plan), {.in = nullptr, .out = bucket.gradients->data(), .state = bucket.state.data()});
  if (!bound.ok()) return bound.status();
  bucket.plan = *std::move(bound);
  return bucket;
}

absl::Status CheckOptions(absl::Span<const Parameter> parameters, const SynchronizerOptions& options) {
  for (const Parameter& parameter : parameters) {
    if (parameter.count < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("parameter ", parameter.name, ": count ", parameter.count, " must be at least 0"));
    }
  }
  if (options.bucket_bytes < 1 || options.first_bucket_bytes < 1) {
    return absl::InvalidArgumentError(absl::StrCat("bucket_bytes ", options.bucket_bytes, " and first_bucket_bytes ",
                                                   options.first_bucket_bytes, " must be at least 1"));
  }
  return absl::OkStatus();
}

std::vector<int> BucketOf(const Layout& layout) {
  std::vector<int> buckets;
  for (const GradientPlace& place : layout.places) buckets.push_back(place.bucket);
  return buckets;
}

}  // namespace

double SyncStatistics::hidden() const {
  if (communication <= absl::ZeroDuration()) return 0;
  return std::clamp(1 - absl::FDivDuration(exposed, communication), 0.0, 1.0);
}

class Synchronizer::Impl {
 public:
  Impl(Communicator& its_communicator, std::vector<Parameter> its_parameters, const SynchronizerOptions& options,
       std::string its_strategy, Layout its_layout)
      : communicator(its_communicator),
        parameters(std::move(its_parameters)),
        allow_unused(options.allow_unused),
        strategy(std::move(its_strategy)),
        layout(std::move(its_layout)),
        ready(BucketOf(layout), static_cast<int>(layout.buckets.size())) {}

  ~Impl() {
    if (in_step && synchronizing) {
      (void)Fail(absl::AbortedError(
          absl::StrCat("rank ", communicator.rank(), " gave up its synchronizer in the middle of a step")));
    }
  }

  void MarkReady(int i) {
    if (!synchronizing) return;
    const bool first = ready.Mark(i, [this](int b) {
      buckets[b].launched_ns = MonotonicNanos();
      buckets[b].work = buckets[b].plan.Start({.timed = true});
    });
    if (!first) marked_twice.store(i, std::memory_order_relaxed);
  }

  std::vector<int> Missing() const {
    std::vector<int> missing;
    if (!in_step || !synchronizing) return missing;
    for (int i = 0; i < static_cast<int>(parameters.size()); ++i) {
      if (!ready.marked(i)) missing.push_back(i);
    }
    return missing;
  }

  // What this rank did wrong in the step.
  absl::Status CheckStep(absl::Span<const int> missing) const {
    if (const int twice = marked_twice.load(std::memory_order_relaxed); twice >= 0) {
      return absl::InvalidArgumentError(absl::StrCat("rank ", communicator.rank(), ": the gradient of ",
                                                     parameters[twice].name, " was marked ready twice in one step"));
    }
    if (missing.empty() || allow_unused) return absl::OkStatus();
    const std::string names =
        absl::StrJoin(missing, ", ", [&](std::string* out, int i) { absl::StrAppend(out, parameters[i].name); });
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", communicator.rank(), ": backward ended without a gradient of ", names,
                     "; set allow_unused if the loss need not depend on every parameter"));
  }

  absl::Status Finish() {
    if (!in_step) return absl::FailedPreconditionError("FinishBackward without BeginBackward");
    if (synchronizing) {
      const std::vector<int> missing = Missing();
      if (absl::Status mistake = CheckStep(missing); !mistake.ok()) return Fail(mistake);
      for (int i : missing) MarkReady(i);
      if (absl::Status status = WaitForBuckets(); !status.ok()) return status;
    }
    in_step = false;
    return absl::OkStatus();
  }

  // Ends the step for the peers too, who would wait for buckets that never come.
  absl::Status Fail(const absl::Status& mistake) {
    communicator.Abort(absl::AbortedError(mistake.message()));
    for (int b = 0; b < ready.launched(); ++b) (void)buckets[b].work.Wait();
    in_step = false;
    return mistake;
  }

  absl::Status WaitForBuckets() {
    const std::int64_t begin_ns = MonotonicNanos();
    absl::Status first_error;
    for (Bucket& bucket : buckets) {
      first_error.Update(bucket.work.Wait());
      if (!first_error.ok()) continue;
      statistics.communication += absl::Nanoseconds(bucket.work.end_nanos() - bucket.launched_ns);
      statistics.wire_bytes += bucket.wire_bytes;
      statistics.gradient_bytes += bucket.gradients->bytes();
    }
    statistics.exposed += absl::Nanoseconds(MonotonicNanos() - begin_ns);
    ++statistics.steps;
    in_step = false;
    return first_error;
  }

  Communicator& communicator;
  const std::vector<Parameter> parameters;
  const bool allow_unused;
  const std::string strategy;
  const Layout layout;
  std::vector<Bucket> buckets;
  ReadyCounters ready;
  std::atomic<int> marked_twice{-1};
  bool synchronize = true;
  bool synchronizing = true;  // in this step
  bool in_step = false;
  SyncStatistics statistics;
};

absl::StatusOr<std::unique_ptr<Synchronizer>> Synchronizer::Create(Communicator& communicator,
                                                                   std::vector<Parameter> parameters,
                                                                   const SynchronizerOptions& options) {
  absl::Status mistake = CheckOptions(parameters, options);
  absl::StatusOr<Strategy> strategy = ParseStrategy(options.strategy);
  mistake.Update(strategy.status());
  // A rank that is wrong takes part in the agreement: its peers would wait for it.
  const std::string agreed_strategy = strategy.ok() ? strategy->ToString() : options.strategy;
  if (absl::Status status = AgreeOnParameters(communicator, parameters, options, agreed_strategy); !status.ok()) {
    return status;
  }
  if (!mistake.ok()) return mistake;
  Layout layout = LayOutBuckets(parameters, options.bucket_bytes, options.first_bucket_bytes);
  auto impl =
      std::make_unique<Impl>(communicator, std::move(parameters), options, strategy->ToString(), std::move(layout));
  for (const BucketLayout& bucket_layout : impl->layout.buckets) {
    absl::StatusOr<Bucket> bucket = MakeBucket(communicator, *strategy, bucket_layout);
    if (!bucket.ok()) return bucket.status();
    impl->buckets.push_back(*std::move(bucket));
  }
  return std::unique_ptr<Synchronizer>(new Synchronizer(std::move(impl)));
}

Synchronizer::Synchronizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Synchronizer::~Synchronizer() = default;

int Synchronizer::bucket_count() const { return static_cast<int>(impl_->buckets.size()); }
const std::string& Synchronizer::strategy() const { return impl_->strategy; }

std::shared_ptr<void> Synchronizer::GradientView(int i) const {
  const GradientPlace& place = impl_->layout.places[i];
  const std::shared_ptr<Buffer>& bucket = impl_->buckets[place.bucket].gradients;
  return {bucket, bucket->data() + place.offset * SizeOf(impl_->parameters[i].dtype)};
}

absl::Status Synchronizer::BeginBackward() {
  if (impl_->in_step) {
    return absl::FailedPreconditionError(
        absl::StrCat("rank ", impl_->communicator.rank(), ": the last backward was begun but not finished"));
  }
  impl_->ready.Reset();
  impl_->marked_twice.store(-1, std::memory_order_relaxed);
  impl_->synchronizing = impl_->synchronize;
  impl_->in_step = true;
  return absl::OkStatus();
}

void Synchronizer::MarkReady(int i) { impl_->MarkReady(i); }
std::vector<int> Synchronizer::MissingGradients() const { return impl_->Missing(); }
absl::Status Synchronizer::FinishBackward() { return impl_->Finish(); }

void Synchronizer::set_synchronize(bool synchronize) { impl_->synchronize = synchronize; }
bool Synchronizer::synchronize() const { return impl_->synchronize; }

void Synchronizer::ZeroGradients() {
  for (Bucket& bucket : impl_->buckets) {
    const absl::Span<std::byte> bytes = bucket.gradients->as<std::byte>();
    std::fill(bytes.begin(), bytes.end(), std::byte{0});
  }
}

absl::Status Synchronizer::BroadcastState(absl::Span<const StateMemory> memory) {
  return tutti::BroadcastState(impl_->communicator, memory);
}

absl::Status Synchronizer::CheckState(absl::Span<const StateMemory> memory) {
  return tutti::CheckState(impl_->communicator, memory);
}

SyncStatistics Synchronizer::TakeStatistics() { return std::exchange(impl_->statistics, {}); }

}  // namespace tutti
