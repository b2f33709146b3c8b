#include "sync/states_on_host.h"

namespace tutti {

absl::StatusOr<StatesOnHost> StatesOnHost::Of(const ExchangeBucket& bucket) {
  StatesOnHost states(bucket);
  const absl::Span<std::byte> memory = bucket.state_memory();
  if (!bucket.where().on_device()) {
    states.data_ = memory.data();
    return states;
  }
  states.copy_.resize(memory.size());
  states.data_ = states.copy_.data();
  absl::Status copied = bucket.where().Transfer(states.data_, memory.data(), static_cast<std::int64_t>(memory.size()));
  if (!copied.ok()) return copied;
  return states;
}

absl::Status StatesOnHost::Store() {
  if (copy_.empty()) return absl::OkStatus();
  return bucket_->where().Transfer(bucket_->state_memory().data(), copy_.data(),
                                   static_cast<std::int64_t>(copy_.size()));
}

}  // namespace tutti
