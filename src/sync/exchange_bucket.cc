#include "sync/exchange_bucket.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "sync/states_on_host.h"

namespace tutti {
namespace {

absl::Status ForAll(absl::Span<ExchangeBucket> buckets, absl::Status (ExchangeBucket::*finish)(SyncStatistics&),
                    SyncStatistics& statistics) {
  const std::int64_t begin_ns = MonotonicNanos();
  absl::Status first_error;
  for (ExchangeBucket& bucket : buckets) first_error.Update((bucket.*finish)(statistics));
  statistics.exposed += absl::Nanoseconds(MonotonicNanos() - begin_ns);
  return first_error;
}

}  // namespace

absl::StatusOr<ExchangeBucket> ExchangeBucket::Create(Communicator& communicator, BucketMemory& memory,
                                                      const Strategy& strategy, const BucketLayout& layout, int index,
                                                      void* place) {
  const PlanOptions& options = communicator.plan_options(memory.kind());
  std::vector<Plan> plans;
  std::int64_t state_bytes = 0;
  std::int64_t scratch_bytes = 0;
  const auto participants = static_cast<int>(ParticipantsOf(strategy, communicator.size(), options).size());
  const int rounds = RoundsOf(strategy, participants);
  if (rounds < 1) {
    return absl::InvalidArgumentError(absl::StrCat("algorithm ", strategy.algorithm->name, ": rounds gives ", rounds,
                                                   " for ", participants, " ranks, must give at least 1"));
  }
  for (int round = 0; round < rounds; ++round) {
    absl::StatusOr<Plan> plan =
        BuildPlan(strategy, layout.dtype, layout.count, communicator.rank(), communicator.size(), options, round);
    if (!plan.ok()) return plan.status();
    state_bytes = std::max(state_bytes, plan->state_bytes);
    if (!plan->maps_peers() && !memory.on_device()) scratch_bytes = std::max(scratch_bytes, plan->scratch_bytes);
    plans.push_back(*std::move(plan));
  }
  ExchangeBucket bucket;
  bucket.algorithm_ = strategy.algorithm->name;
  bucket.where_ = &memory;
  bucket.index_ = index;
  bucket.names_ = layout.names;
  bucket.background_ = strategy.algorithm->phase == Phase::kBackground;
  bucket.count_ = layout.count;
  const auto allocate = [&](Buffer& buffer, std::int64_t bytes) {
    absl::StatusOr<Buffer> allocated = memory.AllocateZeroed(bytes);
    if (!allocated.ok()) return allocated.status();
    buffer = *std::move(allocated);
    return absl::OkStatus();
  };
  Buffer own;
  bucket.out_bytes_ = plans[0].out_bytes;
  for (const auto& [buffer, bytes] :
       {std::pair(&bucket.in_, plans[0].in_bytes), std::pair(&own, place == nullptr ? bucket.out_bytes_ : 0),
        std::pair(&bucket.state_, state_bytes), std::pair(&bucket.scratch_, scratch_bytes)}) {
    if (absl::Status allocated = allocate(*buffer, bytes); !allocated.ok()) return allocated;
  }
  bucket.memory_ = std::make_shared<Buffer>(std::move(own));
  bucket.out_ = place == nullptr ? bucket.memory_->data() : static_cast<std::byte*>(place);
  const PlanBuffers buffers = {
      .in = bucket.in_.data(), .out = bucket.out_, .state = bucket.state_.data(), .scratch = bucket.scratch_.data()};
  for (const Plan& plan : plans) {
    // All rounds share one state; a round without states leaves it alone.
    if (!plan.states.empty()) bucket.states_ = plan.states;
    absl::StatusOr<BoundPlan> bound = communicator.Bind(strategy, layout.dtype, layout.count, plan.round, buffers);
    if (!bound.ok()) return bound.status();
    bucket.rounds_.push_back(*std::move(bound));
  }
  return bucket;
}

Work ExchangeBucket::Start(int round, std::int64_t step, const CallOptions& call) {
  refusal_ = absl::OkStatus();
  if (round < 0 || round >= static_cast<int>(rounds_.size())) {
    return Work(absl::InvalidArgumentError(
        absl::StrCat("algorithm ", algorithm_, ": round ", round, " is to run in training step ", step,
                     " (from 0 on), must be in 0…", rounds_.size() - 1, ": see round_of and rounds of its record")));
  }
  const std::int64_t launched_ns = MonotonicNanos();
  CallOptions options = call;
  options.caller_drives = options.background = background_;  // the background thread does nothing but wait
  options.timed = true;
  options.draw = static_cast<std::uint64_t>(step) << 32 | static_cast<std::uint32_t>(index_);
  Work started = rounds_[round].Start(options);
  // On the host no option of a call is refused, and a run may have ended already, with an error of all ranks.
  if (where_->on_device() && started.done()) refusal_ = started.Wait();
  if (absl::IsInvalidArgument(refusal_)) return started;
  refusal_ = absl::OkStatus();
  launched_ns_ = launched_ns;
  counted_ = false;
  step_ = step;
  return started;
}

Work ExchangeBucket::LaunchShared(std::int64_t step, const CallOptions& call) {
  Work started = Start(/*round=*/0, step, call);
  if (refusal_.ok()) work_ = rounds_.front().LastRun();
  return started;
}

absl::Status ExchangeBucket::Explained(absl::Status status) const {
  if (!absl::IsDeadlineExceeded(status) || names_.empty()) return status;
  // Rounds in the background belong to no step.
  const std::string when =
      background_ ? "a round in the background" : absl::StrCat("training step ", step_, " (from 0 on)");
  return absl::DeadlineExceededError(absl::StrCat(status.message(), "; the training waited for bucket ", index_,
                                                  " (parameters ", names_, ") in ", when));
}

absl::Status ExchangeBucket::MoveTo(void* place) {
  if (place == out_) return absl::OkStatus();
  out_ = nullptr;  // stays null unless all rounds can run at `place`
  for (BoundPlan& round : rounds_) {
    absl::Status rebound = round.Rebind({.in = in_.data(), .out = place, .state = state_.data()});
    if (!rebound.ok()) return rebound;
  }
  out_ = static_cast<std::byte*>(place);
  return absl::OkStatus();
}

absl::Status ExchangeBucket::ScaleResiduals(double factor) {
  absl::StatusOr<StatesOnHost> states = StatesOnHost::Of(*this);
  if (!states.ok()) return states.status();
  for (const StateRange& state : states_) {
    if (state.kind != StateKind::kResidual) continue;
    auto* const values = reinterpret_cast<float*>(states->AddressOf(state));
    for (std::int64_t i = 0; i < state.range.count(); ++i) values[i] = static_cast<float>(values[i] * factor);
  }
  return states->Store();
}

void ExchangeBucket::ZeroResiduals() const {
  for (const StateRange& state : states_) {
    if (state.kind == StateKind::kResidual) where_->Zero(AddressOf(state), state.range.bytes);
  }
}

absl::Status ExchangeBucket::FinishOutput(SyncStatistics& statistics) {
  // Where no parameter of the type has elements, the bucket has no memory, and its call is one of the host.
  const bool on_stream = where_->on_device() && out_bytes_ > 0;
  absl::Status status = Explained(on_stream ? work_.WaitOnStream(where_->stream()) : work_.WaitForOutput());
  if (status.ok()) CountTraffic(statistics);
  return status;
}

absl::Status ExchangeBucket::Finish(SyncStatistics& statistics) {
  if (absl::Status status = Explained(work_.Wait()); !status.ok()) return status;
  CountTraffic(statistics);
  if (const std::int64_t launched_ns = std::exchange(launched_ns_, 0); launched_ns != 0) {
    statistics.communication += absl::Nanoseconds(work_.end_nanos() - launched_ns);
  }
  return absl::OkStatus();
}

void ExchangeBucket::CountTraffic(SyncStatistics& statistics) {
  if (std::exchange(counted_, true)) return;
  statistics.wire_bytes += work_.wire_bytes();
  statistics.payload_bytes += out_bytes_;
}

absl::StatusOr<std::vector<ExchangeBucket>> MakeBuckets(Communicator& communicator, BucketMemory& memory,
                                                        const Strategy& strategy, absl::Span<const BucketLayout> layout,
                                                        absl::Span<void* const> places) {
  std::vector<ExchangeBucket> buckets;
  for (std::size_t i = 0; i < layout.size(); ++i) {
    absl::StatusOr<ExchangeBucket> bucket = ExchangeBucket::Create(
        communicator, memory, strategy, layout[i], static_cast<int>(i), places.empty() ? nullptr : places[i]);
    if (!bucket.ok()) return bucket.status();
    buckets.push_back(*std::move(bucket));
  }
  return buckets;
}

absl::Status FinishOutputs(absl::Span<ExchangeBucket> buckets, SyncStatistics& statistics) {
  return ForAll(buckets, &ExchangeBucket::FinishOutput, statistics);
}

absl::Status FinishAll(absl::Span<ExchangeBucket> buckets, SyncStatistics& statistics) {
  return ForAll(buckets, &ExchangeBucket::Finish, statistics);
}

}  // namespace tutti
