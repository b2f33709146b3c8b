#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "store/limits.h"
#include "tutti/store.h"

namespace tutti {
namespace {

class PrefixStore final : public Store {
 public:
  PrefixStore(std::shared_ptr<Store> base, absl::string_view prefix, std::vector<Rank> members)
      : base_(std::move(base)), prefix_(prefix), members_(std::move(members)) {}

  absl::Status Set(absl::string_view key, absl::string_view value, absl::Time deadline) override {
    if (absl::Status status = CheckKey(key); !status.ok()) return status;
    return base_->Set(absl::StrCat(prefix_, key), value, deadline);
  }
  absl::StatusOr<std::string> Get(absl::string_view key, absl::Time deadline, OnGone on_gone) override {
    if (absl::Status status = CheckKey(key); !status.ok()) return status;
    if (members_.empty()) return base_->Get(absl::StrCat(prefix_, key), deadline, on_gone);
    const auto on_member_gone = [&](Rank gone) {
      const auto member = std::find(members_.begin(), members_.end(), gone);
      return member == members_.end() ? absl::OkStatus() : on_gone(static_cast<Rank>(member - members_.begin()));
    };
    return base_->Get(absl::StrCat(prefix_, key), deadline, on_member_gone);
  }
  absl::StatusOr<std::string> Look(absl::string_view key, absl::Time deadline) override {
    if (absl::Status status = CheckKey(key); !status.ok()) return status;
    return base_->Look(absl::StrCat(prefix_, key), deadline);
  }
  absl::StatusOr<std::int64_t> Add(absl::string_view key, std::int64_t delta, absl::Time deadline) override {
    if (absl::Status status = CheckKey(key); !status.ok()) return status;
    return base_->Add(absl::StrCat(prefix_, key), delta, deadline);
  }
  absl::Status Delete(absl::string_view key, absl::Time deadline) override {
    if (absl::Status status = CheckKey(key); !status.ok()) return status;
    return base_->Delete(absl::StrCat(prefix_, key), deadline);
  }

 private:
  const std::shared_ptr<Store> base_;
  const std::string prefix_;
  const std::vector<Rank> members_;
};

}  // namespace

std::shared_ptr<Store> MakePrefixStore(std::shared_ptr<Store> base, absl::string_view prefix,
                                       std::vector<Rank> members) {
  return std::make_shared<PrefixStore>(std::move(base), prefix, std::move(members));
}

}  // namespace tutti
