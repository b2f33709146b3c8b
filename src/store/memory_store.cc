#include <condition_variable>
#include <mutex>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "store/limits.h"
#include "tutti/store.h"

namespace tutti {
namespace {

class MemoryStore final : public Store {
 public:
  absl::Status Set(absl::string_view key, absl::string_view value) override {
    if (absl::Status status = CheckKeyAndValue(key, value); !status.ok()) return status;
    {
      std::lock_guard lock(mutex_);
      values_[std::string(key)] = std::string(value);
    }
    changed_.notify_all();
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> Get(absl::string_view key, absl::Time deadline) override {
    if (absl::Status status = CheckKey(key); !status.ok()) return status;
    std::unique_lock lock(mutex_);
    auto found = values_.end();
    const auto present = [&] { return (found = values_.find(key)) != values_.end(); };
    if (!changed_.wait_until(lock, absl::ToChronoTime(deadline), present)) return KeyNotSet(key);
    return found->second;
  }

  absl::StatusOr<std::int64_t> Add(absl::string_view key, std::int64_t delta) override {
    if (absl::Status status = CheckKey(key); !status.ok()) return status;
    absl::StatusOr<std::int64_t> sum;
    {
      std::lock_guard lock(mutex_);
      std::string& value = values_[std::string(key)];
      sum = AddToValue(key, value, delta);
      if (sum.ok()) value = absl::StrCat(*sum);
    }
    changed_.notify_all();
    return sum;
  }

  absl::Status Delete(absl::string_view key) override {
    if (absl::Status status = CheckKey(key); !status.ok()) return status;
    std::lock_guard lock(mutex_);
    values_.erase(key);
    return absl::OkStatus();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  absl::flat_hash_map<std::string, std::string> values_;
};

}  // namespace

std::shared_ptr<Store> MakeMemoryStore() { return std::make_shared<MemoryStore>(); }

}  // namespace tutti
