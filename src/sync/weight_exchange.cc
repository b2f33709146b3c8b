#include "sync/weight_exchange.h"

#include <cstdint>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/combine.h"
#include "kernels/reduce.h"

namespace tutti {

absl::StatusOr<std::unique_ptr<WeightExchange>> WeightExchange::Create(Communicator& communicator,
                                                                       const Strategy& strategy,
                                                                       const std::vector<Parameter>& parameters,
                                                                       const Layout& layout) {
  for (const Parameter& parameter : parameters) {
    if (parameter.weights != nullptr || parameter.count == 0) continue;
    return absl::InvalidArgumentError(absl::StrCat("rank ", communicator.rank(), ": parameter ", parameter.name,
                                                   " has no weights; ", strategy.algorithm->name,
                                                   " exchanges them and must know where they lie"));
  }
  std::unique_ptr<WeightExchange> exchange(new WeightExchange(communicator, parameters, layout));
  absl::StatusOr<std::vector<ExchangeBucket>> buckets = MakeBuckets(communicator, strategy, layout.buckets);
  if (!buckets.ok()) return buckets.status();
  exchange->buckets_ = *std::move(buckets);
  return exchange;
}

WeightExchange::~WeightExchange() {
  if (travels()) {
    communicator_.Abort(absl::AbortedError(
        absl::StrCat("rank ", communicator_.rank(), " gave up its synchronizer in the middle of a step")));
  }
  SyncStatistics unused;
  (void)Finish(unused);
}

template <typename Visit>
void WeightExchange::ForEach(std::size_t b, Visit visit) {
  for (const int i : layout_.buckets[b].parameters) {
    const Parameter& parameter = parameters_[i];
    const std::int64_t width = SizeOf(parameter.dtype);
    visit(parameter, layout_.places[i].offset * width, static_cast<std::size_t>(parameter.count * width));
  }
}

void WeightExchange::TakeSnapshot() {
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    ForEach(b, [&](const Parameter& parameter, std::int64_t offset, std::size_t bytes) {
      if (bytes > 0) std::memcpy(buckets_[b].in().data() + offset, parameter.weights, bytes);
    });
  }
}

void WeightExchange::Launch(int round, std::int64_t step) {
  progress_ = Progress::kTravels;
  for (ExchangeBucket& bucket : buckets_) bucket.Launch(round, step);
}

absl::Status WeightExchange::FinishOutputs(SyncStatistics& statistics) {
  progress_ = Progress::kOutputsFinal;
  return tutti::FinishOutputs(absl::MakeSpan(buckets_), statistics);
}

absl::Status WeightExchange::Finish(SyncStatistics& statistics) {
  if (std::exchange(progress_, Progress::kEnded) == Progress::kEnded) return absl::OkStatus();
  return FinishAll(absl::MakeSpan(buckets_), statistics);
}

void WeightExchange::Replace() {
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    ForEach(b, [&](const Parameter& parameter, std::int64_t offset, std::size_t bytes) {
      if (bytes > 0) std::memcpy(parameter.weights, buckets_[b].out()->data() + offset, bytes);
    });
  }
}

void WeightExchange::Correct() {
  constexpr Coefficient kKeepProgress[] = {{1, 1}, {1, 1}, {-1, 1}};
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    ForEach(b, [&](const Parameter& parameter, std::int64_t offset, std::size_t /*bytes*/) {
      const void* const terms[] = {parameter.weights, buckets_[b].out()->data() + offset,
                                   buckets_[b].in().data() + offset};
      kernels::Combine(parameter.dtype, parameter.weights, terms, kKeepProgress, parameter.count,
                       kernels::Results::kAll);
    });
  }
}

absl::Status WeightExchange::Average(Communicator& communicator) {
  TakeSnapshot();
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    Work average = communicator.AllReduce(buckets_[b].in().data(), buckets_[b].out()->data(), layout_.buckets[b].count,
                                          layout_.buckets[b].dtype, ReduceOp::kAvg, {.caller_drives = true});
    if (absl::Status status = average.Wait(); !status.ok()) return status;
  }
  Replace();
  return absl::OkStatus();
}

void WeightExchange::ResetReplicas() {
  for (std::size_t b = 0; b < buckets_.size(); ++b) {
    for (const StateRange& state : buckets_[b].states()) {
      if (state.kind != StateKind::kReplica) continue;
      std::byte* const replica = buckets_[b].AddressOf(state);
      ForEach(b, [&](const Parameter& parameter, std::int64_t offset, std::size_t /*bytes*/) {
        const std::int64_t at = offset / SizeOf(parameter.dtype) * SizeOf(state.range.dtype);
        kernels::Convert(state.range.dtype, replica + at, parameter.dtype, parameter.weights, parameter.count,
                         kernels::Stores::kCached);
      });
    }
  }
}

}  // namespace tutti
