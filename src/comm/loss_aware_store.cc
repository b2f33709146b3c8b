#include "comm/loss_aware_store.h"

#include <algorithm>
#include <utility>

#include "absl/time/time.h"
#include "base/clock.h"

namespace tutti {
namespace {

// The time between two looks for lost ranks. A store gives its connection up when it cannot write the whole of a
// request within the time of the request, so this time is longer than a busy store needs to accept a request.
constexpr absl::Duration kSlice = absl::Milliseconds(500);

class LossAwareStore final : public Store {
 public:
  LossAwareStore(std::shared_ptr<Store> base, std::function<std::vector<Rank>()> lost,
                 std::function<absl::Status()> ended)
      : base_(std::move(base)), lost_(std::move(lost)), ended_(std::move(ended)) {}

  absl::Status Set(absl::string_view key, absl::string_view value, absl::Time deadline) override {
    return base_->Set(key, value, deadline);
  }
  absl::StatusOr<std::string> Get(absl::string_view key, absl::Time deadline, OnGone on_gone) override {
    const std::int64_t end_ns = NanosAt(deadline);
    while (true) {
      const std::int64_t slice_end_ns = std::min(end_ns, NanosIn(kSlice));
      absl::StatusOr<std::string> value = base_->Get(key, TimeAt(slice_end_ns), on_gone);
      if (!absl::IsDeadlineExceeded(value.status()) || slice_end_ns == end_ns) return value;
      if (ended_ != nullptr) {
        if (absl::Status status = ended_(); !status.ok()) return status;
      }
      for (const Rank rank : lost_()) {
        const absl::Status status = on_gone(rank);
        if (status.ok()) continue;
        // What the rank set before its end may have arrived after the last look.
        absl::StatusOr<std::string> last = base_->Look(key, TimeAt(end_ns));
        return absl::IsNotFound(last.status()) ? status : last;
      }
    }
  }
  absl::StatusOr<std::string> Look(absl::string_view key, absl::Time deadline) override {
    return base_->Look(key, deadline);
  }
  absl::StatusOr<std::int64_t> Add(absl::string_view key, std::int64_t delta, absl::Time deadline) override {
    return base_->Add(key, delta, deadline);
  }
  absl::Status Delete(absl::string_view key, absl::Time deadline) override { return base_->Delete(key, deadline); }

 private:
  const std::shared_ptr<Store> base_;
  const std::function<std::vector<Rank>()> lost_;
  const std::function<absl::Status()> ended_;
};

}  // namespace

std::shared_ptr<Store> MakeLossAwareStore(std::shared_ptr<Store> base, std::function<std::vector<Rank>()> lost,
                                          std::function<absl::Status()> ended) {
  return std::make_shared<LossAwareStore>(std::move(base), std::move(lost), std::move(ended));
}

}  // namespace tutti
