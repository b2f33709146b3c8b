#include "tutti/bucket_exchange.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "sync/bucket_exchange_impl.h"
#include "tutti/agreement.h"
#include "tutti/algorithm.h"

namespace tutti {
namespace {

// OK when the algorithm exchanges gradients, and nothing else.
absl::Status CheckGradients(const Algorithm& algorithm) {
  if (algorithm.exchanges == Exchanges::kGradients) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "strategy ", algorithm.name,
      ": use tutti.torch.DistributedDataParallel in Python, or, in C++, DataParallel "
      "(tutti/torch/data_parallel.h) or a Synchronizer (tutti/synchronizer.h)",
      algorithm.optimizer.empty() ? "" : absl::StrCat(", with ", algorithm.optimizer),
      "; or name a strategy that exchanges gradients, such as bytegrad. ", algorithm.name, " exchanges ",
      Name(algorithm.exchanges), ", and a hook of torch's DDP sees gradients alone, as a BucketExchange does"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<BucketExchange>> BucketExchange::Create(Communicator& communicator,
                                                                       const std::string& strategy, MemoryKind memory) {
  absl::StatusOr<Strategy> parsed = ParseStrategy(strategy);
  absl::Status mistake = parsed.ok() ? CheckGradients(*parsed->algorithm) : parsed.status();
  absl::StatusOr<std::unique_ptr<BucketMemory>> where = BucketMemory::Create(communicator, memory);
  mistake.Update(where.status());
  const AgreementFields fields = {
      {"version", TUTTI_VERSION}, {"strategy", parsed.ok() ? parsed->ToString() : strategy}, {"memory", Name(memory)}};
  // A rank with a mistake takes part in the agreement, because its peers would wait for it.
  if (absl::Status agreed = Agree(communicator, "bucket exchange", fields, mistake); !agreed.ok()) return agreed;
  const absl::StatusOr<Caller> caller = Caller::Create(communicator, CallOwner::Kind::kBucketExchange);
  if (!caller.ok()) return caller.status();
  return std::unique_ptr<BucketExchange>(
      new BucketExchange(std::make_unique<Impl>(communicator, *std::move(where), *caller, *std::move(parsed))));
}

BucketExchange::BucketExchange(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
BucketExchange::~BucketExchange() = default;

const std::string& BucketExchange::strategy() const { return impl_->name(); }
int BucketExchange::bucket_count() const { return impl_->bucket_count(); }
std::int64_t BucketExchange::step() const { return impl_->step(); }
std::uint32_t BucketExchange::number(int bucket) const { return impl_->number(bucket); }
absl::Status BucketExchange::SetBucket(int bucket, BucketContents contents, void* data) {
  return impl_->SetBucket(bucket, std::move(contents), data);
}
Work BucketExchange::Exchange(int bucket, void* data, absl::Duration timeout, void* stream) {
  return impl_->Exchange(bucket, data, timeout, stream);
}
absl::Status BucketExchange::SetLossScale(double scale) { return impl_->SetLossScale(scale); }
double BucketExchange::loss_scale() const { return impl_->loss_scale(); }
absl::StatusOr<std::string> BucketExchange::SaveState() const { return impl_->SaveState(); }
absl::Status BucketExchange::LoadState(absl::Span<const std::string> states) { return impl_->LoadState(states); }

}  // namespace tutti
