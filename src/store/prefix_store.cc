#include <utility>

#include "absl/strings/str_cat.h"
#include "store/limits.h"
#include "tutti/store.h"

namespace tutti {
namespace {

class PrefixStore final : public Store {
 public:
  PrefixStore(std::shared_ptr<Store> base, absl::string_view prefix) : base_(std::move(base)), prefix_(prefix) {}

  absl::Status Set(absl::string_view key, absl::string_view value) override {
    if (absl::Status status = CheckKey(key); !status.ok()) return status;
    return base_->Set(absl::StrCat(prefix_, key), value);
  }
  absl::StatusOr<std::string> Get(absl::string_view key, absl::Time deadline) override {
    if (absl::Status status = CheckKey(key); !status.ok()) return status;
    return base_->Get(absl::StrCat(prefix_, key), deadline);
  }
  absl::StatusOr<std::int64_t> Add(absl::string_view key, std::int64_t delta) override {
    if (absl::Status status = CheckKey(key); !status.ok()) return status;
    return base_->Add(absl::StrCat(prefix_, key), delta);
  }
  absl::Status Delete(absl::string_view key) override {
    if (absl::Status status = CheckKey(key); !status.ok()) return status;
    return base_->Delete(absl::StrCat(prefix_, key));
  }

 private:
  const std::shared_ptr<Store> base_;
  const std::string prefix_;
};

}  // namespace

std::shared_ptr<Store> MakePrefixStore(std::shared_ptr<Store> base, absl::string_view prefix) {
  return std::make_shared<PrefixStore>(std::move(base), prefix);
}

}  // namespace tutti
