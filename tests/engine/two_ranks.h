// Two ranks of one process, each with an engine and one channel, which a test drives step by step.
#ifndef TUTTI_TESTS_ENGINE_TWO_RANKS_H_
#define TUTTI_TESTS_ENGINE_TWO_RANKS_H_

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/call.h"
#include "engine/channel.h"
#include "engine/engine.h"
#include "engine/host_executor.h"
#include "engine/lent_memory.h"
#include "memory/arena.h"
#include "plan/shared_beginning.h"
#include "transports/forwarding.h"
#include "tutti/schedule.h"

namespace tutti {

// The clock of the test, which stands still except that every look moves it on by `step_ns`.
struct TestClock {
  static inline std::atomic<std::int64_t> now_ns{1'000'000'000};
  static inline std::atomic<std::int64_t> step_ns{0};
  static std::int64_t Look() { return now_ns.fetch_add(step_ns) + step_ns; }
};

// A transport whose knowledge of its peers is set by the test.
class TestTransport final : public ForwardingTransport {
 public:
  explicit TestTransport(std::unique_ptr<Transport> inner) : ForwardingTransport(std::move(inner)) {}

  absl::Span<const Loss> Check() override {
    if (on_check != nullptr) on_check();
    return losses.empty() ? ForwardingTransport::Check() : losses;
  }
  bool Progress() override {
    if (held_for > 0) --held_for;
    return ForwardingTransport::Progress();
  }
  bool HoldsSent() override { return held_for > 0; }
  bool Drain() override {
    if (on_drain != nullptr) on_drain();
    return ForwardingTransport::Drain();
  }
  void Sleep(absl::Time until) override {
    ++sleeps;
    if (on_sleep != nullptr) on_sleep();
    const std::int64_t ns = absl::ToInt64Nanoseconds(until - absl::Now());
    if (ns < shortest_sleep_ns) shortest_sleep_ns = ns;
    ForwardingTransport::Sleep(sleeps_until_woken ? absl::InfiniteFuture() : until);
  }
  void Wake() override {
    ForwardingTransport::Wake();
    if (on_wake != nullptr) on_wake();
  }
  std::optional<Note> TakeNote() override {
    if (notes.empty()) return ForwardingTransport::TakeNote();
    Note note = notes.front();
    notes.erase(notes.begin());
    return note;
  }
  void Disconnect(Rank peer, const absl::Status& cause) override { losses.push_back({peer, cause}); }
  void Shutdown(const absl::Status& cause) override {
    shut_down = true;
    ForwardingTransport::Shutdown(cause);
    if (on_shutdown != nullptr) on_shutdown();
  }
  bool HasLeft(Rank peer) override {
    ++asked;
    return peer == left || ForwardingTransport::HasLeft(peer);
  }
  bool ShowsToPeers(const void* /*data*/, std::int64_t /*bytes*/) const override { return true; }
  bool IsReceivingFrom(Rank peer) const override { return receiving || ForwardingTransport::IsReceivingFrom(peer); }

  std::vector<Loss> losses;
  std::vector<Note> notes;
  Rank left = -1;
  int asked = 0;                  // calls of HasLeft
  bool receiving = false;         // from every peer
  std::atomic<int> held_for = 0;  // after so many calls of Progress, a message that has been sent has left this rank
  std::function<void()> on_shutdown;
  std::atomic<bool> shut_down = false;
  std::function<void()> on_drain, on_check, on_sleep, on_wake;
  bool sleeps_until_woken = false;
  std::atomic<int> sleeps = 0;
  std::atomic<std::int64_t> shortest_sleep_ns = std::numeric_limits<std::int64_t>::max();  // as asked for
};

// A program of rank 0 of two, for tests that need any program.
inline std::shared_ptr<const Program> SomeProgram() {
  const CollectiveSpec spec{.collective = Collective::kBarrier};
  return Compile(*BuildPlan(**FindSchedule(Collective::kBarrier, "dissemination"), spec, 0, 2, {}));
}

struct TestRank {
  std::shared_ptr<TestTransport> transport;
  std::shared_ptr<Arena> arena;
  Buffer presence_memory;
  Presence* presence = nullptr;
  std::shared_ptr<LentMemory> lent = std::make_shared<LentMemory>();
  std::shared_ptr<ControlBlocks> blocks;
  ControlBlock* control = nullptr;
  std::shared_ptr<Engine> engine;
  Executor* executor = nullptr;  // belongs to the engine
  std::unique_ptr<Channel> channel;
};

class TwoRanks {
 public:
  using MakeExecutor = std::function<std::unique_ptr<Executor>(Transport&, Presence&)>;

  // `mapped`: the ranks map each other's memory. `timeout`: of the engines, by TestClock. `may_spin`: see
  // EngineOptions.
  explicit TwoRanks(bool mapped, absl::Duration timeout = absl::Seconds(10),
                    const MakeExecutor& make_executor = MakeHostExecutor, bool may_spin = false) {
    TestClock::step_ns = 0;
    const auto hub = MakeInprocHub(2, mapped ? 2 : 1);
    std::vector<std::string> addresses;
    for (TestRank& rank : ranks) {
      rank.transport = std::make_shared<TestTransport>(MakeInprocTransport(hub, {.region_bytes = 64 << 20}).value());
      addresses.push_back(rank.transport->Address().value());
    }
    for (Rank r = 0; r < 2; ++r) {
      TestRank& rank = ranks[r];
      EXPECT_EQ(rank.transport->Connect(r, addresses, absl::InfiniteFuture()), absl::OkStatus());
      rank.arena = std::make_shared<Arena>(rank.transport, r);
      rank.presence_memory = rank.arena->Allocate(sizeof(Presence)).value();
      rank.presence = new (rank.presence_memory.data()) Presence;
      rank.blocks = std::make_shared<ControlBlocks>(rank.arena);
      rank.control = rank.blocks->Open().value();
    }
    for (Rank r = 0; r < 2; ++r) Start(r, mapped, timeout, make_executor, may_spin);
  }

  ~TwoRanks() {
    for (TestRank& rank : ranks) {
      if (rank.channel != nullptr) Close(rank);
    }
    for (TestRank& rank : ranks) rank.engine->Stop();
  }

  static std::unique_ptr<Executor> MakeHostExecutor(Transport& transport, Presence& presence) {
    return std::make_unique<HostExecutor>(transport, presence, /*may_spin=*/false);
  }

  static void Close(TestRank& rank) {
    rank.engine->Close(*rank.channel);
    rank.channel.reset();
  }

  // A call with one reference, of a plan of `rank`.
  Call* NewCall(Rank rank, const CollectiveSpec& spec, absl::string_view schedule) {
    const PlanOptions options{.peers_mapped = ranks[0].channel->peer(1).control != nullptr};
    absl::StatusOr<Plan> plan = BuildPlan(**FindSchedule(spec.collective, schedule), spec, rank, 2, options);
    EXPECT_TRUE(plan.ok()) << plan.status();
    return Call::Create(Compile(*std::move(plan)), *ranks[rank].channel);
  }

  // A call as NewCall makes it, by a plan that only copies from peers and serves private buffers, too, which the peers
  // read.
  Call* NewReadingCall(Rank rank, const CollectiveSpec& spec, absl::string_view schedule) {
    const absl::StatusOr<Plan> plan =
        BuildPlan(**FindSchedule(spec.collective, schedule), spec, rank, 2, {.peers_mapped = true});
    EXPECT_TRUE(plan.ok()) << plan.status();
    const StepId beginning = SharedBeginningOfReader(*plan, *plan);
    return Call::Create(Compile(*plan, *plan, beginning, /*reads_processes=*/true), *ranks[rank].channel);
  }

  TestRank ranks[2];

 private:
  void Start(Rank r, bool mapped, absl::Duration timeout, const MakeExecutor& make_executor, bool may_spin) {
    TestRank& rank = ranks[r];
    EngineOptions options;
    options.rank = r;
    options.timeout = timeout;
    options.may_spin = may_spin;
    options.now_ns = TestClock::Look;
    options.idle_tick = absl::InfiniteDuration();  // the engine's thread looks at nothing until it is woken
    for (Rank peer = 0; peer < 2; ++peer) {
      options.presence.push_back(peer == r || mapped ? ranks[peer].presence : nullptr);
    }
    options.presence.push_back(nullptr);  // rank 2 of the world, on another node and not in the channel
    std::unique_ptr<Executor> executor = make_executor(*rank.transport, *rank.presence);
    rank.executor = executor.get();
    rank.engine = std::make_shared<Engine>(rank.transport, rank.arena, std::move(executor), std::move(options));
    std::vector<Channel::Peer> peers(2);
    for (Rank peer = 0; peer < 2; ++peer) {
      peers[peer].world_rank = peer;
      peers[peer].channel = 7;
      peers[peer].endpoint = &rank.transport->endpoint(peer);
      peers[peer].region = peer == r ? rank.transport->region() : peers[peer].endpoint->region();
      if (peer == r || mapped) peers[peer].control = ranks[peer].control;
    }
    rank.channel = std::make_unique<Channel>(*rank.engine, rank.arena, rank.lent, rank.blocks, r, std::move(peers));
  }
};

}  // namespace tutti

#endif  // TUTTI_TESTS_ENGINE_TWO_RANKS_H_
