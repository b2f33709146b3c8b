#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/fork.h"
#include "base/mutex.h"
#include "store/limits.h"
#include "tutti/store.h"

namespace tutti {
namespace {

class MemoryStore final : public Store {
 public:
  absl::Status Set(absl::string_view key, absl::string_view value, absl::Time /*deadline*/) override {
    if (absl::Status status = CheckKeyAndValue(key, value); !status.ok()) return status;
    if (absl::Status status = CheckProcess(); !status.ok()) return status;
    {
      const MutexLock lock(mutex_);
      values_[std::string(key)] = std::string(value);
    }
    changed_.NotifyAll();
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> Get(absl::string_view key, absl::Time deadline, OnGone /*on_gone*/) override {
    if (absl::Status status = CheckKey(key); !status.ok()) return status;
    if (absl::Status status = CheckProcess(); !status.ok()) return status;
    const MutexLock lock(mutex_);
    auto found = values_.end();
    const auto present = [&]() TUTTI_REQUIRES(mutex_) { return (found = values_.find(key)) != values_.end(); };
    if (!changed_.WaitUntil(mutex_, NanosAt(deadline), present)) return KeyNotSet(key);
    return found->second;
  }

  absl::StatusOr<std::string> Look(absl::string_view key, absl::Time /*deadline*/) override {
    if (absl::Status status = CheckKey(key); !status.ok()) return status;
    if (absl::Status status = CheckProcess(); !status.ok()) return status;
    const MutexLock lock(mutex_);
    const auto found = values_.find(key);
    if (found == values_.end()) return NoSuchKey(key);
    return found->second;
  }

  absl::StatusOr<std::int64_t> Add(absl::string_view key, std::int64_t delta, absl::Time /*deadline*/) override {
    if (absl::Status status = CheckKey(key); !status.ok()) return status;
    if (absl::Status status = CheckProcess(); !status.ok()) return status;
    absl::StatusOr<std::int64_t> sum;
    {
      const MutexLock lock(mutex_);
      std::string& value = values_[std::string(key)];
      sum = AddToValue(key, value, delta);
      if (sum.ok()) value = absl::StrCat(*sum);
    }
    changed_.NotifyAll();
    return sum;
  }

  absl::Status Delete(absl::string_view key, absl::Time /*deadline*/) override {
    if (absl::Status status = CheckKey(key); !status.ok()) return status;
    if (absl::Status status = CheckProcess(); !status.ok()) return status;
    const MutexLock lock(mutex_);
    values_.erase(key);
    return absl::OkStatus();
  }

 private:
  absl::Status CheckProcess() const {
    if (maker_.is_this()) return absl::OkStatus();
    return absl::FailedPreconditionError("a memory store belongs to the process that made it, not to a forked child");
  }

  const MakerProcess maker_;
  Mutex mutex_;
  Condition changed_;
  absl::flat_hash_map<std::string, std::string> values_ TUTTI_GUARDED_BY(mutex_);
};

}  // namespace

std::shared_ptr<Store> MakeMemoryStore() { return std::make_shared<MemoryStore>(); }

}  // namespace tutti
