#include "bindings/torch/process_group/torch_store.h"

#include <algorithm>
#include <exception>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "bindings/torch/process_group/interrupt.h"

namespace tutti::dist {
namespace {

constexpr absl::Duration kFirstPause = absl::Microseconds(100);
constexpr absl::Duration kLongestPause = absl::Milliseconds(20);
constexpr absl::Duration kBetweenChecks = absl::Milliseconds(500);

class TorchStore : public Store {
 public:
  TorchStore(c10::intrusive_ptr<::c10d::Store> store, std::function<absl::Status()> check)
      : store_(std::move(store)), check_(std::move(check)) {}

  using Store::Get;

  absl::Status Set(absl::string_view key, absl::string_view value, absl::Time) override {
    return Guarded("set", key, [&] {
      store_->set(std::string(key), std::vector<std::uint8_t>(value.begin(), value.end()));
      return absl::OkStatus();
    });
  }

  absl::StatusOr<std::string> Get(absl::string_view key, absl::Time deadline, OnGone) override {
    SignalWatch signals;
    const absl::Duration limit = deadline - absl::Now();
    const WaitClock::time_point begin = WaitClock::now();
    absl::Duration next_check = kBetweenChecks;
    for (absl::Duration pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
      absl::StatusOr<std::string> value = Look(key, deadline);
      if (!absl::IsNotFound(value.status())) return value;
      if (absl::Status status = signals.Look(); !status.ok()) return status;
      const absl::Duration waited = absl::FromChrono(WaitClock::now() - begin);
      if (check_ != nullptr && waited >= next_check) {
        if (absl::Status status = check_(); !status.ok()) return status;
        next_check = waited + kBetweenChecks;
      }
      const absl::Duration left = limit - waited;
      if (left <= absl::ZeroDuration()) {
        return absl::DeadlineExceededError(absl::StrCat("torch's store has no value for the key ", key));
      }
      absl::SleepFor(std::min(pause, left));
    }
  }

  absl::StatusOr<std::string> Look(absl::string_view key, absl::Time) override {
    return Guarded("get", key, [&]() -> absl::StatusOr<std::string> {
      const std::string name(key);
      if (!store_->check({name})) return absl::NotFoundError(absl::StrCat("torch's store has no key ", key));
      const std::vector<std::uint8_t> value = store_->get(name);
      return std::string(value.begin(), value.end());
    });
  }

  absl::StatusOr<std::int64_t> Add(absl::string_view key, std::int64_t delta, absl::Time) override {
    return Guarded("add", key, [&]() -> absl::StatusOr<std::int64_t> { return store_->add(std::string(key), delta); });
  }

  absl::Status Delete(absl::string_view key, absl::Time) override {
    return Guarded("delete", key, [&] {
      store_->deleteKey(std::string(key));
      return absl::OkStatus();
    });
  }

 private:
  template <typename Function>
  static auto Guarded(absl::string_view verb, absl::string_view key, Function function) -> decltype(function()) {
    try {
      return function();
    } catch (const c10::Error& error) {
      return absl::UnavailableError(
          absl::StrCat("torch's store: ", verb, " of the key ", key, ": ", error.what_without_backtrace(),
                       "; has the process that serves the store (rank 0, or torchrun's agent) ended?"));
    } catch (const std::exception& error) {
      return absl::UnavailableError(absl::StrCat("torch's store: ", verb, " of the key ", key, ": ", error.what()));
    }
  }

  const c10::intrusive_ptr<::c10d::Store> store_;
  const std::function<absl::Status()> check_;
};

}  // namespace

std::shared_ptr<Store> MakeTorchStore(c10::intrusive_ptr<::c10d::Store> store, std::function<absl::Status()> check) {
  return std::make_shared<TorchStore>(std::move(store), std::move(check));
}

}  // namespace tutti::dist
