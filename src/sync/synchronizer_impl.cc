#include "sync/synchronizer_impl.h"

#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/exactly.h"
#include "tutti/agreement.h"
#include "tutti/algorithm.h"

namespace tutti {

absl::Status Synchronizer::Impl::Make(const Layout& layout, const SynchronizerOptions& options) {
  context.bucket_count = static_cast<int>(layout.buckets.size());
  absl::StatusOr<std::unique_ptr<Exchange>> made = MakeExchange(context, layout, options);
  if (!made.ok()) return made.status();
  exchange = *std::move(made);
  return absl::OkStatus();
}

std::string Synchronizer::Impl::Save() {
  const absl::StatusOr<absl::Span<ExchangeBucket>> buckets = exchange->BucketsToSave();
  if (!buckets.ok()) return "";
  return WriteCheckpoint(Owner(), *buckets).value_or("");
}

absl::Status Synchronizer::Impl::Load(absl::Span<const std::string> states) {
  const absl::Span<ExchangeBucket> buckets = exchange->BucketsToLoad();
  const auto agree = [this](const absl::StatusOr<CheckpointOwner>& saved) {
    AgreementFields fields;
    if (saved.ok()) {
      // Whether that is the same world decides what ranks do together afterwards.
      fields.emplace_back("world of the states", absl::StrCat(saved->size, " ranks"));
      fields.emplace_back("participants of the states", absl::StrJoin(saved->participants, " "));
      fields.emplace_back("loss scale of the states", Exactly(saved->loss_scale));
      if (!Owner().steps_alone) fields.emplace_back("step of the states", absl::StrCat(saved->step));
    }
    return tutti::Agree(context.communicator, "states", std::move(fields), saved.status(),
                        exchange->Call(Purpose::kState));
  };
  const absl::StatusOr<CheckpointOwner> saved = ReadCheckpoint(states, Owner(), buckets, agree);
  if (!saved.ok()) return saved.status();
  context.step = saved->step;
  context.round = static_cast<std::uint64_t>(saved->step) + 1;
  context.loss_scale = saved->loss_scale;
  // Weights that were saved after a step differ by design, unless a Flush came between.
  context.replicas_differ =
      saved->step > 0 && ExchangesWeights(*context.strategy.algorithm) && !exchange->exchanges_gradients();
  return exchange->EndLoad(SameWorld(*saved, Owner()));
}

absl::StatusOr<bool> Synchronizer::Impl::AgreeOnOverflow(bool mine) {
  if (!exchange->steps_together()) return mine;
  std::int32_t any = mine ? 1 : 0;
  Work agreement = context.communicator.AllReduce(&any, &any, 1, DType::kI32, ReduceOp::kMax,
                                                  exchange->Call(Purpose::kOverflow, {.caller_drives = true}));
  if (absl::Status status = agreement.Wait(); !status.ok()) return status;
  return any != 0;
}

SyncStatistics Synchronizer::Impl::TakeStatistics() {
  SyncStatistics taken = std::exchange(context.statistics, {});
  const Counters now = context.communicator.counters();
  taken.engine_cpu += now.engine_cpu - taken_at_.engine_cpu;
  taken.engine_waiting += now.engine_waiting - taken_at_.engine_waiting;
  taken_at_ = now;
  return taken;
}

CheckpointOwner Synchronizer::Impl::Owner() const {
  return {.strategy = name,
          .rank = context.communicator.rank(),
          .size = context.communicator.size(),
          .step = context.step,
          .loss_scale = context.loss_scale,
          .steps_alone = context.strategy.algorithm->phase == Phase::kBackground,
          .participants = context.participants};
}

}  // namespace tutti
