// The deadline of a wait that takes many calls of a store, while somebody sets the system's clock.
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "tests/harness/stopped_clock.h"
#include "tutti/bootstrap.h"
#include "tutti/communicator.h"
#include "tutti/transport.h"

namespace tutti {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(60);

// A store after each of whose calls the system's clock is an hour ahead or behind, in turn. The deadlines that its
// calls get must not show these jumps.
class ClockSettingStore final : public Store {
 public:
  absl::Status Set(absl::string_view key, absl::string_view value, absl::Time deadline) override {
    SetClock(deadline);
    return store_->Set(key, value, absl::InfiniteFuture());
  }
  absl::StatusOr<std::string> Get(absl::string_view key, absl::Time deadline, OnGone on_gone) override {
    SetClock(deadline);
    return store_->Get(key, absl::InfiniteFuture(), on_gone);
  }
  absl::StatusOr<std::string> Look(absl::string_view key, absl::Time deadline) override {
    SetClock(deadline);
    return store_->Look(key, absl::InfiniteFuture());
  }
  absl::StatusOr<std::int64_t> Add(absl::string_view key, std::int64_t delta, absl::Time deadline) override {
    SetClock(deadline);
    return store_->Add(key, delta, absl::InfiniteFuture());
  }
  absl::Status Delete(absl::string_view key, absl::Time deadline) override {
    SetClock(deadline);
    return store_->Delete(key, absl::InfiniteFuture());
  }

  int calls() const { return calls_; }

 private:
  void SetClock(absl::Time deadline) {
    const absl::Duration left = deadline - absl::Now();
    EXPECT_GT(left, absl::ZeroDuration()) << "in call " << calls_;
    EXPECT_LE(left, kTimeout) << "in call " << calls_;
    clock_.reset();
    clock_.emplace(absl::Hours(calls_++ % 2 == 0 ? 1 : -1));
  }

  const std::shared_ptr<Store> store_ = MakeMemoryStore();
  int calls_ = 0;
  std::optional<StoppedClock> clock_;
};

TEST(DeadlinesTest, AnExchangeIsAsLongAsItSays) {
  ClockSettingStore store;
  EXPECT_TRUE(ExchangeBlobs(store, "x", 0, 1, "", absl::Now() + kTimeout).ok());
  EXPECT_TRUE(CheckAgreement(store, "x", 0, 1, {}, absl::Now() + kTimeout).ok());
  EXPECT_GT(store.calls(), 8);
}

TEST(DeadlinesTest, ACommunicatorIsMadeInItsTime) {
  const auto store = std::make_shared<ClockSettingStore>();
  std::unique_ptr<Transport> transport = MakeInprocTransport(MakeInprocHub(1), {.region_bytes = 1 << 20}).value();
  const auto world = Communicator::Create({Identity{}, store}, std::move(transport), {.timeout = kTimeout});
  EXPECT_TRUE(world.ok()) << world.status();
  EXPECT_GT(store->calls(), 16);
}

}  // namespace
}  // namespace tutti
