// The deadline of a wait that takes many calls of a store, while somebody sets the system's clock.
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "comm/device_parts.h"
#include "gtest/gtest.h"
#include "tests/harness/fake_device.h"
#include "tests/harness/stopped_clock.h"
#include "tests/harness/world.h"
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

// A maker of native transports, during whose first call the system's clock is set an hour back. The deadlines of its
// calls must not show that.
class ClockSettingMaker final : public NativeTransportMaker {
 public:
  explicit ClockSettingMaker(const NativeTransportMaker& maker) : maker_(maker) {}

  absl::StatusOr<std::string> NewId() const override {
    clock_.emplace(-absl::Hours(1));
    return maker_.NewId();
  }
  absl::StatusOr<std::unique_ptr<NativeTransport>> Connect(absl::string_view id, Rank rank, int size, int device,
                                                           absl::Time deadline) const override {
    EXPECT_LT(deadline - absl::Now(), absl::Hours(1)) << "rank " << rank;
    return maker_.Connect(id, rank, size, device, deadline);
  }

 private:
  const NativeTransportMaker& maker_;
  mutable std::optional<StoppedClock> clock_;
};

TEST(DeadlinesTest, RanksOnGpusMeetInTheirTime) {
  UseFakeDevices();
  DeviceParts parts = PartsOfThisProcess().value();
  const ClockSettingMaker maker(*parts.native);
  parts.native = &maker;
  WorldOptions options = OnDevices();
  std::once_flag set;
  options.wrap = [&](Rank, std::unique_ptr<Transport> transport) {
    std::call_once(set, [&] { SetPartsOfThisProcess(&parts); });  // after RunWorld has set the fake's own
    return transport;
  };
  RunWorld(2, options, [](Communicator& comm) { EXPECT_EQ(comm.gpu_transport().substr(0, 5), "nccl:"); });
  SetPartsOfThisProcess(nullptr);
}

}  // namespace
}  // namespace tutti
