#include "sync/weight_buckets.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "sync/agreement.h"
#include "sync/count_wait.h"
#include "tutti/schedule.h"

namespace tutti {

absl::StatusOr<std::unique_ptr<WeightBuckets>> WeightBuckets::Create(Communicator& communicator, BucketMemory& memory,
                                                                     const Strategy& strategy,
                                                                     const std::vector<Parameter>& parameters,
                                                                     const Layout& layout) {
  std::unique_ptr<WeightBuckets> exchange(new WeightBuckets(memory, parameters, layout));
  // Buckets lie at the weights only if all ranks exchange. Otherwise leaders reduce the weights of their node into
  // their outputs, which may hold partial sums after a failure.
  const std::vector<Rank> participants =
      ParticipantsOf(strategy, communicator.size(), communicator.plan_options(memory.kind()));
  const bool in_place =
      WorksInPlace(*strategy.algorithm) && static_cast<int>(participants.size()) == communicator.size();
  std::vector<void*> places(layout.buckets.size());
  for (std::size_t b = 0; in_place && b < places.size(); ++b) {
    const std::vector<int>& inside = layout.buckets[b].parameters;
    if (inside.size() == 1) places[b] = parameters[inside[0]].weights;
  }
  absl::StatusOr<std::vector<ExchangeBucket>> buckets =
      MakeBuckets(communicator, memory, strategy, layout.buckets, places);
  if (!buckets.ok()) return buckets.status();
  exchange->buckets_ = *std::move(buckets);
  return exchange;
}

WeightBuckets::~WeightBuckets() {
  SyncStatistics unused;
  (void)Finish(unused);
}

template <typename Visit>
void WeightBuckets::ForEach(std::size_t b, Visit visit) {
  for (const int i : layout_.buckets[b].parameters) {
    const Parameter& parameter = parameters_[i];
    const std::int64_t width = SizeOf(parameter.dtype);
    visit(parameter, layout_.places[i].offset * width, parameter.count * width);
  }
}

void WeightBuckets::Gather(std::size_t b, std::byte* to) {
  ForEach(b, [&](const Parameter& parameter, std::int64_t offset, std::int64_t bytes) {
    Copy(to + offset, parameter.weights, bytes);
  });
}

void WeightBuckets::Scatter(std::size_t b, const std::byte* from) {
  ForEach(b, [&](const Parameter& parameter, std::int64_t offset, std::int64_t bytes) {
    Copy(parameter.weights, from + offset, bytes);
  });
}

void WeightBuckets::TakeSnapshot() {
  for (std::size_t b = 0; b < buckets_.size(); ++b) Gather(b, buckets_[b].in());
  // Launch waits for the snapshot alone, and not for what the training thread enqueues meanwhile.
  memory_.LetWait(memory_.side_stream(), memory_.stream());
}

void WeightBuckets::Launch(int round, std::int64_t step, const CallOptions& call) {
  runs_ = travels_ = true;
  CallOptions after_snapshot = call;
  after_snapshot.stream = memory_.side_stream();
  for (ExchangeBucket& bucket : buckets_) bucket.Launch(round, step, after_snapshot);
}

absl::Status WeightBuckets::FinishOutputs(SyncStatistics& statistics) {
  travels_ = false;
  return tutti::FinishOutputs(absl::MakeSpan(buckets_), statistics);
}

absl::Status WeightBuckets::Finish(SyncStatistics& statistics) {
  if (!std::exchange(runs_, false)) return absl::OkStatus();
  return FinishAll(absl::MakeSpan(buckets_), statistics);
}

void WeightBuckets::Replace() {
  for (std::size_t b = 0; b < buckets_.size(); ++b) Scatter(b, buckets_[b].out());
}

void WeightBuckets::Correct() {
  constexpr Coefficient kKeepProgress[] = {{1, 1}, {-1, 1}, {1, 1}};
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    ForEach(b, [&](const Parameter& parameter, std::int64_t offset, std::int64_t /*bytes*/) {
      const void* const terms[] = {buckets_[b].out() + offset, buckets_[b].in() + offset, parameter.weights};
      memory_.Combine(parameter.dtype, parameter.weights, terms, kKeepProgress, parameter.count);
    });
  }
}

absl::Status WeightBuckets::Average(Communicator& communicator, const Caller& caller, const CallOptions& call,
                                    SyncStatistics& statistics) {
  std::int64_t longest = 0;
  for (const BucketLayout& bucket : layout_.buckets) longest = std::max(longest, bucket.count * SizeOf(bucket.dtype));
  absl::StatusOr<Buffer> sums = communicator.Allocate(longest, memory_.kind());
  // A rank that comes early waits here for the others.
  const std::int64_t early_ns = MonotonicNanos();
  absl::Status on_all = AgreeOnMemory(communicator, caller, sums.status());
  CountWait(early_ns, statistics);
  if (!on_all.ok()) return on_all;
  CallOptions driven = call;
  driven.caller_drives = true;
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    const BucketLayout& bucket = layout_.buckets[b];
    Gather(b, sums->data());
    const auto add = [&] {
      return communicator.AllReduce(sums->data(), sums->data(), bucket.count, bucket.dtype, ReduceOp::kAvg, driven);
    };
    Work average = add();
    const std::int64_t begin_ns = MonotonicNanos();
    absl::Status status = average.Wait();
    // A schedule that the user has named for all_reduce cannot serve the bucket on any rank.
    if (absl::IsUnimplemented(status) && communicator.status().ok()) {
      driven.schedule = &kSelectorsChoice;
      average = add();
      status = average.Wait();
    }
    if (!status.ok()) return status;
    CountWait(begin_ns, statistics);
    statistics.wire_bytes += average.wire_bytes();
    statistics.payload_bytes += bucket.count * SizeOf(bucket.dtype);
    Scatter(b, sums->data());
  }
  return absl::OkStatus();
}

void WeightBuckets::ResetReplicas() {
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    for (const StateRange& state : buckets_[b].states()) {
      if (state.kind != StateKind::kReplica) continue;
      std::byte* const replica = buckets_[b].AddressOf(state);
      ForEach(b, [&](const Parameter& parameter, std::int64_t offset, std::int64_t /*bytes*/) {
        const std::int64_t at = offset / SizeOf(parameter.dtype) * SizeOf(state.range.dtype);
        memory_.Convert(state.range.dtype, replica + at, parameter.dtype, parameter.weights, parameter.count);
      });
    }
  }
}

}  // namespace tutti
