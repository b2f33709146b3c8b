#include "sync/bucket_exchange_impl.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/exactly.h"
#include "plan/limits.h"
#include "sync/agreement.h"
#include "sync/buckets.h"
#include "sync/loss_scale.h"
#include "tutti/agreement.h"

namespace tutti {
namespace {

// How long the destruction of a BucketExchange waits for exchanges of a GPU.
constexpr absl::Duration kTimeToEnd = absl::Seconds(2);

std::int64_t CountOf(const BucketContents& contents) {
  std::int64_t count = 0;
  for (const BucketParameter& parameter : contents.parameters) count += parameter.count;
  return count;
}

AgreementFields FieldsOf(int bucket, const BucketContents& contents) {
  AgreementFields fields = {{"bucket", absl::StrCat(bucket)},
                            {"dtype", std::string(Name(contents.dtype))},
                            {"parameters", absl::StrCat(contents.parameters.size())}};
  for (std::size_t i = 0; i < contents.parameters.size(); ++i) {
    const BucketParameter& parameter = contents.parameters[i];
    fields.emplace_back(absl::StrCat("parameter[", i, "]"),
                        absl::StrCat(parameter.key, " (", parameter.count, " elements)"));
  }
  return fields;
}

}  // namespace

BucketExchange::Impl::~Impl() {
  // On a GPU an exchange that has been waited for on a stream may be under way, and ends soon, unless a peer or this
  // rank gives up in the middle of a step.
  const absl::Time deadline = memory_->on_device() ? absl::Now() + kTimeToEnd : absl::InfinitePast();
  const bool ended = std::all_of(buckets_.begin(), buckets_.end(), [&](Bucket& bucket) {
    if (!bucket.exchange.has_value()) return true;
    return memory_->on_device() ? bucket.exchange->EndsBy(deadline) : !bucket.exchange->runs();
  });
  if (ended) return;
  communicator_.Abort(absl::AbortedError(
      absl::StrCat("rank ", communicator_.rank(), " gave up its bucket exchange in the middle of a step")));
  SyncStatistics unused;
  for (Bucket& bucket : buckets_) {
    if (bucket.exchange.has_value() && bucket.exchange->runs()) (void)bucket.exchange->Finish(unused);
  }
}

std::uint32_t BucketExchange::Impl::number(int bucket) const {
  return bucket >= 0 && bucket < bucket_count() ? buckets_[bucket].caller.number() : 0;
}

absl::Status BucketExchange::Impl::CheckIdle(int bucket) {
  std::optional<ExchangeBucket>& exchange = buckets_[bucket].exchange;
  if (!exchange.has_value() || !exchange->runs()) return absl::OkStatus();
  if (memory_->on_device()) {
    SyncStatistics unused;
    (void)exchange->Finish(unused);
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat("bucket ", bucket, " is still under way; wait for the work of its last exchange"));
}

absl::Status BucketExchange::Impl::CheckIdle() {
  absl::Status idle;
  for (int bucket = 0; bucket < bucket_count(); ++bucket) idle.Update(CheckIdle(bucket));
  return idle;
}

absl::Status BucketExchange::Impl::OfThisRank(const absl::Status& error) const {
  return {error.code(), absl::StrCat("rank ", communicator_.rank(), ": ", error.message())};
}

absl::Status BucketExchange::Impl::Check(int bucket, const BucketContents& contents, const void* data) {
  if (bucket < 0 || bucket > bucket_count()) {
    return absl::InvalidArgumentError(
        absl::StrCat("bucket ", bucket, " is not in 0…", bucket_count(), ", the next one that can be set"));
  }
  if (const auto dtype = static_cast<std::size_t>(contents.dtype); dtype >= kAllDTypes.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("bucket ", bucket, ": dtype ", dtype, " must be in 0…", kAllDTypes.size() - 1));
  }
  std::set<absl::string_view> keys;
  std::int64_t left = kMaxBytes / SizeOf(contents.dtype);
  for (const BucketParameter& parameter : contents.parameters) {
    if (!keys.insert(parameter.key).second) {
      return absl::InvalidArgumentError(absl::StrCat("bucket ", bucket, " holds parameter ", parameter.key, " twice"));
    }
    if (parameter.count < 0 || parameter.count > left) {
      return absl::InvalidArgumentError(absl::StrCat("bucket ", bucket, ", parameter ", parameter.key, ": count ",
                                                     parameter.count, " is not in 0…", left,
                                                     ": a bucket holds at most ", kMaxBytes, " bytes"));
    }
    left -= parameter.count;
    const auto before = counts_.find(parameter.key);
    if (before != counts_.end() && before->second != parameter.count) {
      return absl::InvalidArgumentError(absl::StrCat("bucket ", bucket, ", parameter ", parameter.key, ": count ",
                                                     parameter.count, " must stay ", before->second));
    }
    const auto loaded = kept_.find(parameter.key);
    if (loaded != kept_.end() && loaded->second.count != parameter.count) {
      return absl::InvalidArgumentError(absl::StrCat("bucket ", bucket, ", parameter ", parameter.key, ": count ",
                                                     parameter.count, " must be ", loaded->second.count,
                                                     ", as in the loaded state"));
    }
  }
  const std::int64_t count = CountOf(contents);
  if (data == nullptr && count > 0) {
    return absl::InvalidArgumentError(absl::StrCat("data is null, and bucket ", bucket, " holds ", count, " elements"));
  }
  for (const int emptied : Emptied(bucket, contents)) {
    if (absl::Status idle = CheckIdle(emptied); !idle.ok()) return idle;
  }
  if (absl::Status is_here = memory_->Check(data); !is_here.ok()) {
    return absl::Status(is_here.code(), absl::StrCat("bucket ", bucket, ": ", is_here.message(),
                                                     " (the kind of memory of BucketExchange::Create)"));
  }
  const absl::StatusOr<Plan> plan = BuildPlan(strategy_, contents.dtype, count, communicator_.rank(),
                                              communicator_.size(), communicator_.plan_options(memory_->kind()));
  if (!plan.ok() || plan->states.size() <= static_cast<std::size_t>(kMaxStates)) return plan.status();
  return absl::UnimplementedError(absl::StrCat("strategy ", name_, " keeps ", plan->states.size(),
                                               " states of a bucket, must be at most ", kMaxStates));
}

std::vector<int> BucketExchange::Impl::Emptied(int bucket, const BucketContents& contents) const {
  std::set<int> emptied;
  if (bucket < bucket_count()) emptied.insert(bucket);
  for (const BucketParameter& parameter : contents.parameters) {
    if (const auto found = bucket_of_.find(parameter.key); found != bucket_of_.end()) emptied.insert(found->second);
  }
  return {emptied.begin(), emptied.end()};
}

std::int64_t BucketExchange::Impl::NextStepOf(const BucketContents& contents) const {
  std::int64_t next = first_step_;
  for (const BucketParameter& parameter : contents.parameters) {
    if (const auto found = steps_.find(parameter.key); found != steps_.end()) next = std::max(next, found->second);
  }
  return next;
}

absl::Status BucketExchange::Impl::SetBucket(int bucket, BucketContents contents, void* data) {
  const absl::Status mistake = Check(bucket, contents, data);
  absl::Status agreed = tutti::Agree(communicator_, "bucket", FieldsOf(bucket, contents), mistake, OwnCall());
  if (!agreed.ok()) return agreed;
  if (bucket == bucket_count()) {
    const absl::StatusOr<Caller> caller = Caller::Create(communicator_, CallOwner::Kind::kBucket);
    if (!caller.ok()) return caller.status();
    buckets_.push_back({.caller = *caller});
  }
  for (const int b : Emptied(bucket, contents)) {
    Bucket& emptied = buckets_[b];
    if (emptied.exchange.has_value()) {
      absl::Status copied = CopyOut(*emptied.exchange, emptied.contents, kept_);
      if (!copied.ok()) return copied;
    }
    emptied.exchange.reset();
    for (const BucketParameter& parameter : emptied.contents.parameters) {
      bucket_of_.erase(parameter.key);
      steps_[parameter.key] = emptied.step;
    }
    emptied.contents = {};
  }
  absl::StatusOr<ExchangeBucket> made =
      ExchangeBucket::Create(communicator_, *memory_, strategy_,
                             {.dtype = contents.dtype, .count = CountOf(contents), .parameters = {}}, bucket, data);
  if (absl::Status on_all = AgreeOnMemory(communicator_, caller_, made.status()); !on_all.ok()) return on_all;
  if (absl::Status moved = MoveIn(kept_, contents, communicator_, OwnCall(), *made); !moved.ok()) return moved;
  buckets_[bucket].step = std::max(buckets_[bucket].step, NextStepOf(contents));
  for (const BucketParameter& parameter : contents.parameters) {
    counts_[parameter.key] = parameter.count;
    bucket_of_[parameter.key] = bucket;
  }
  buckets_[bucket].contents = std::move(contents);
  buckets_[bucket].exchange = *std::move(made);
  return absl::OkStatus();
}

Work BucketExchange::Impl::Exchange(int bucket, void* data, absl::Duration timeout, void* stream) {
  if (bucket < 0 || bucket >= bucket_count() || !buckets_[bucket].exchange.has_value()) {
    return Work(absl::InvalidArgumentError(absl::StrCat(
        "rank ", communicator_.rank(), ": bucket ", bucket,
        " is not set, or another bucket has taken the parameters of this bucket; call SetBucket before Exchange")));
  }
  if (absl::Status idle = CheckIdle(bucket); !idle.ok()) return Work(OfThisRank(idle));
  Bucket& mine = buckets_[bucket];
  if (data == nullptr && mine.exchange->count() > 0) {
    return Work(absl::InvalidArgumentError(
        absl::StrCat("rank ", communicator_.rank(), ": data of bucket ", bucket, " is null")));
  }
  // A wrong timeout is refused before the exchange is counted: all ranks must count the same exchanges.
  if (timeout < absl::ZeroDuration()) {
    return Work(absl::InvalidArgumentError(absl::StrCat("rank ", communicator_.rank(), ": timeout of bucket ", bucket,
                                                        " must be positive, or 0 for the communicator's")));
  }
  // A rank without memory for staging starts the run all the same, which then ends with this error on all ranks.
  const absl::Status moved = mine.exchange->count() == 0 ? absl::OkStatus() : mine.exchange->MoveTo(data);
  if (!moved.ok() && !absl::IsResourceExhausted(moved)) return Work(moved);
  const std::int64_t step = mine.step;
  CallOptions call = mine.caller.Sign(Purpose::kStep, static_cast<std::uint64_t>(step) + 1, {});
  call.timeout = timeout;
  call.stream = stream;
  Work started = mine.exchange->LaunchShared(step, call);
  // Nor is the exchange of a stream that is refused counted.
  if (!mine.exchange->refusal().ok()) return started;
  mine.step = step + 1;
  step_ = std::max(step_, mine.step);
  return started;
}

absl::Status BucketExchange::Impl::SetLossScale(double scale) {
  if (scale == loss_scale_) return absl::OkStatus();
  absl::Status agreed = AgreeOnLossScale(communicator_, scale, CheckIdle(), caller_.Sign(Purpose::kLossScale, 0, {}));
  if (!agreed.ok()) return agreed;
  for (Bucket& bucket : buckets_) {
    if (!bucket.exchange.has_value()) continue;
    absl::Status scaled = bucket.exchange->ScaleResiduals(scale / loss_scale_);
    if (!scaled.ok()) return scaled;
  }
  Multiply(kept_, scale / loss_scale_);
  loss_scale_ = scale;
  return absl::OkStatus();
}

CheckpointOwner BucketExchange::Impl::Owner() const {
  // The name differs from the strategy name of a synchronizer, whose saved states are different.
  return {.strategy = absl::StrCat("buckets of ", name_),
          .rank = communicator_.rank(),
          .size = communicator_.size(),
          .step = step_,
          .loss_scale = loss_scale_,
          .participants = ParticipantsOf(strategy_, communicator_.size(), communicator_.plan_options(memory_->kind()))};
}

absl::StatusOr<std::string> BucketExchange::Impl::SaveState() {
  if (absl::Status idle = CheckIdle(); !idle.ok()) return OfThisRank(idle);
  Residuals all = kept_;
  SyncStatistics unused;
  for (Bucket& bucket : buckets_) {
    if (!bucket.exchange.has_value() || bucket.exchange->states().empty()) continue;
    // A residual is changed before the exchange succeeds, and says nothing where the exchange has failed.
    if (absl::Status ended = bucket.exchange->Finish(unused); !ended.ok()) return ended;
    if (absl::Status copied = CopyOut(*bucket.exchange, bucket.contents, all); !copied.ok()) return copied;
  }
  return Write({Owner(), ToSave(all)});
}

absl::Status BucketExchange::Impl::LoadState(absl::Span<const std::string> states) {
  absl::Status mistake = CheckIdle();
  const absl::StatusOr<std::vector<Checkpoint>> parsed = Parse(states);
  mistake.Update(parsed.status());
  // A state without residuals leaves none here, whatever buckets there are or will be.
  if (mistake.ok()) mistake.Update(CheckOwners(*parsed, Owner(), /*stateless=*/true));
  Residuals loaded;
  AgreementFields fields;
  if (mistake.ok()) {
    absl::StatusOr<Residuals> mine = TakeOver(*parsed, Owner(), counts_);
    mistake.Update(mine.status());
    if (mine.ok()) loaded = *std::move(mine);
    const CheckpointOwner saved = OwnerOf(*parsed);
    fields = {{"world of the states", absl::StrCat(saved.size, " ranks")},
              {"loss scale of the states", Exactly(saved.loss_scale)},
              {"step of the states", absl::StrCat(saved.step)}};
  }
  absl::Status agreed = tutti::Agree(communicator_, "states", std::move(fields), mistake, OwnCall());
  if (!agreed.ok()) return agreed;
  kept_ = std::move(loaded);
  first_step_ = step_ = OwnerOf(*parsed).step;
  steps_.clear();
  loss_scale_ = OwnerOf(*parsed).loss_scale;
  for (Bucket& bucket : buckets_) {
    bucket.step = step_;
    if (!bucket.exchange.has_value()) continue;
    absl::Status moved = MoveIn(kept_, bucket.contents, communicator_, OwnCall(), *bucket.exchange);
    if (!moved.ok()) return moved;
  }
  return absl::OkStatus();
}

}  // namespace tutti
