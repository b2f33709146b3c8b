// What a bucket keeps from step to step, where the host can read and change it.
#ifndef TUTTI_SYNC_STATES_ON_HOST_H_
#define TUTTI_SYNC_STATES_ON_HOST_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sync/exchange_bucket.h"
#include "tutti/plan.h"

namespace tutti {

// The states of one bucket: where they lie, or a copy of memory of a GPU. The bucket outlives this class, does not
// move, and has no run under way.
class StatesOnHost {
 public:
  static absl::StatusOr<StatesOnHost> Of(const ExchangeBucket& bucket);

  std::byte* AddressOf(const StateRange& state) const { return data_ + state.range.offset; }
  // Lets the bucket have what was written here.
  absl::Status Store();

 private:
  explicit StatesOnHost(const ExchangeBucket& bucket) : bucket_(&bucket) {}

  const ExchangeBucket* bucket_;
  std::vector<std::byte> copy_;
  std::byte* data_ = nullptr;
};

}  // namespace tutti

#endif  // TUTTI_SYNC_STATES_ON_HOST_H_
