#include "engine/engine.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/futex.h"
#include "engine/channel.h"
#include "engine/hang.h"

namespace tutti {
namespace {

// A rank that waits looks after its peers' health and its deadlines at least this often.
constexpr absl::Duration kRestSlice = absl::Milliseconds(50);
// While it waits for messages and signals at once, one of which cannot wake it from the other's sleep.
constexpr absl::Duration kMixedSlice = absl::Microseconds(200);
// In the background it does not wake up for every packet: what arrives meanwhile waits in the sockets' buffers.
constexpr absl::Duration kNap = absl::Milliseconds(10);

// A caller that waits has nothing else to do: so much polling costs less than going to sleep and waking up. Inside a
// node it takes about 50 µs; over TCP, where a poll is a system call, about a millisecond.
constexpr BackoffPolicy kEager = {.spins = 1500, .yields = 20};
// Ranks share cores: the one that is waited for needs this one's.
constexpr BackoffPolicy kYielding = {.spins = 0, .yields = 100};
// The engine thread's core belongs to the user's computation.
constexpr BackoffPolicy kPatient = {.spins = 0, .yields = 2};

}  // namespace

Engine::Engine(std::shared_ptr<Transport> transport, EngineOptions options)
    : transport_(std::move(transport)),
      options_(std::move(options)),
      presence_(*options_.presence[options_.rank]),
      executor_(*transport_),
      thread_([this] { ThreadMain(); }) {}

Engine::~Engine() {
  stop_.store(true, std::memory_order_seq_cst);
  WakeDriver();
  WakeThread();
  thread_.join();
  transport_->Shutdown(absl::OkStatus());
}

std::uint32_t Engine::Submit(Operation& operation, bool caller_drives) {
  operation.AddReference();
  const std::uint32_t run = ++operation.runs_started;
  queue_.Push(&operation);
  WakeDriver();
  if (!caller_drives) WakeThread();
  return run;
}

void Engine::WakeDriver() {
  if (!driver_sleeps_.load(std::memory_order_seq_cst)) return;
  presence_.doorbell.fetch_add(1, std::memory_order_seq_cst);
  FutexWakeAll(presence_.doorbell);
  transport_->Wake();
}

void Engine::WakeThread() {
  thread_calls_.fetch_add(1, std::memory_order_seq_cst);
  if (thread_sleeps_.load(std::memory_order_seq_cst)) FutexWakeAll(thread_calls_);
}

void Engine::RingSleepers(const Channel& channel) {
  for (Rank peer = 0; peer < channel.size(); ++peer) {
    Presence* const theirs = options_.presence[channel.peer(peer).world_rank];
    if (theirs == nullptr || theirs == &presence_ || theirs->sleeping.load(std::memory_order_seq_cst) == 0) continue;
    theirs->doorbell.fetch_add(1, std::memory_order_seq_cst);
    FutexWakeAll(theirs->doorbell);
  }
}

void Engine::OnMessage(Completion* completion, const absl::Status& status) {
  auto& message = *static_cast<Operation::MessageCompletion*>(completion);
  Engine& engine = message.operation->engine;
  engine.driver_mutex_.AssertHeld();  // completions come from Progress and Shutdown
  engine.executor_.OnMessage(message, status);
}

void Engine::ClaimDriver() {
  claims_.fetch_add(1, std::memory_order_seq_cst);
  WakeDriver();
  driver_mutex_.Lock();
  claims_.fetch_sub(1, std::memory_order_seq_cst);
}

bool Engine::TryToDrive(bool background) {
  if (claims_.load() > 0) return false;  // who has claimed the seat drives for all
  if (driver_mutex_.TryLock()) return true;
  // A caller that waits drives faster than the engine thread, which takes its time.
  if (background || !thread_drives_.load(std::memory_order_relaxed)) return false;
  ClaimDriver();
  return true;
}

void Engine::Wait(Milestone& milestone, std::uint32_t run, bool background) {
  while (!milestone.passed(run)) {
    if (!TryToDrive(background)) {
      milestone.Sleep(run, kRestSlice);
      continue;
    }
    Drive(&milestone, run, options_.may_spin ? kEager : kYielding);
    const bool leaves_work = !executor_.idle() || !queue_.empty();
    driver_mutex_.Unlock();
    if (leaves_work) WakeThread();
  }
}

void Engine::ThreadMain() {
  std::uint32_t seen = 0;
  while (!stop_.load(std::memory_order_seq_cst)) {
    const std::uint32_t calls = thread_calls_.load(std::memory_order_seq_cst);
    if (calls == seen) {
      thread_sleeps_.store(true, std::memory_order_seq_cst);
      FutexWait(thread_calls_, seen, absl::Hours(1));
      thread_sleeps_.store(false, std::memory_order_seq_cst);
      continue;
    }
    seen = calls;
    const MutexLock driver(driver_mutex_);
    thread_drives_.store(true, std::memory_order_relaxed);
    Drive(nullptr, 0, kPatient);
    thread_drives_.store(false, std::memory_order_relaxed);
  }
}

// Until the run has come to the milestone (without one: until nothing is left to do), or somebody else wants to drive.
void Engine::Drive(const Milestone* milestone, std::uint32_t run, const BackoffPolicy& policy) {
  Backoff backoff(policy);
  while (true) {
    const bool moved = Poll();
    if (milestone != nullptr ? milestone->passed(run) : executor_.idle() && queue_.empty()) return;
    // Whoever claims the seat may be the one for whom the peers wait: nobody keeps it from them for an operation.
    if (claims_.load() > 0 || (milestone == nullptr && stop_.load())) return;
    if (moved) {
      backoff.Reset();
      presence_.waits_for.store(-1, std::memory_order_relaxed);
    } else if (executor_.all_in_background() || !backoff.Pause()) {
      Rest();
    }
  }
}

bool Engine::Poll() {
  bool moved = false;
  if (!queue_.empty()) {
    for (Operation* operation = queue_.TakeAll(); operation != nullptr;) {
      Operation* const next = operation->next.load(std::memory_order_relaxed);
      executor_.Add(operation);
      operation = next;
    }
    moved = true;
  }
  if (!sticky_->ok()) {
    Fail(sticky_->Get());
    return true;
  }
  absl::StatusOr<bool> advanced = executor_.Poll();
  if (!advanced.ok()) {
    Fail(advanced.status());
    return true;
  }
  return moved || *advanced;
}

// Sleeps until a signal, a message or a submission arrives, or kRestSlice has passed.
void Engine::Rest() {
  const std::int64_t now_ns = MonotonicNanos();
  presence_.heartbeat_ns.store(now_ns, std::memory_order_relaxed);
  Operation* const oldest = executor_.oldest();
  std::optional<Blocker> blocker;
  if (oldest != nullptr) blocker = executor_.BlockerOf(*oldest);
  presence_.waits_for.store(blocker.has_value() ? oldest->channel.peer(blocker->peer).world_rank : -1,
                            std::memory_order_relaxed);
  if (absl::Status status = CheckHealth(now_ns); !status.ok()) {
    Fail(status);
    return;
  }
  driver_sleeps_.store(true, std::memory_order_seq_cst);
  presence_.sleeping.store(1, std::memory_order_seq_cst);
  const std::uint32_t doorbell = presence_.doorbell.load(std::memory_order_seq_cst);
  // Whatever happened before the stores above is found here; whatever happens after them rings.
  if (!Poll() && !stop_.load() && claims_.load() == 0) {
    const bool messages = executor_.waits_for_messages();
    const bool signals = executor_.waits_for_signals();
    const bool naps = messages && executor_.all_in_background();
    if (naps || signals) {
      FutexWait(presence_.doorbell, doorbell, naps ? kNap : messages ? kMixedSlice : kRestSlice);
      if (naps) transport_->Drain();
    } else if (messages) {
      transport_->Sleep(absl::Now() + kRestSlice);
    }
  }
  presence_.sleeping.store(0, std::memory_order_relaxed);
  driver_sleeps_.store(false, std::memory_order_relaxed);
}

absl::Status Engine::CheckHealth(std::int64_t now_ns) {
  if (now_ns - last_check_ns_ >= absl::ToInt64Nanoseconds(kRestSlice) / 2) {
    last_check_ns_ = now_ns;
    if (absl::Status status = transport_->Check(); !status.ok()) return status;
  }
  Operation* const oldest = executor_.oldest();
  if (oldest == nullptr) return absl::OkStatus();
  if (oldest->deadline_ns == 0) oldest->deadline_ns = now_ns + absl::ToInt64Nanoseconds(options_.timeout);
  return now_ns < oldest->deadline_ns ? absl::OkStatus() : Overdue(*oldest);
}

absl::Status Engine::Overdue(Operation& operation) {
  const Program& program = operation.program();
  const std::optional<Blocker> blocker = executor_.BlockerOf(operation);
  const Rank direct = blocker.has_value() ? operation.channel.peer(blocker->peer).world_rank : options_.rank;
  const Rank culprit = FindStalledRank(options_.presence, options_.rank, direct);
  const std::string through = culprit == direct ? "" : absl::StrCat(" (through rank ", direct, ", which waits too)");
  return absl::DeadlineExceededError(
      absl::StrCat("rank ", options_.rank, " waited ", absl::FormatDuration(options_.timeout), " for rank ", culprit,
                   through, " in call ", operation.sequence, ", ", program.plan.name, " ", ToString(program.plan.spec),
                   ", at ", blocker.has_value() ? blocker->step : "its end"));
}

void Engine::Fail(const absl::Status& cause) {
  sticky_->Set(cause);
  const absl::Status first = sticky_->Get();
  if (!failed_) {
    failed_ = true;
    transport_->Shutdown(first);
  }
  executor_.EndAll();
}

void Engine::Close(const Channel& channel) {
  ClaimDriver();
  Poll();
  if (!executor_.idle()) WakeThread();
  if (executor_.Uses(channel)) {
    Fail(absl::AbortedError(absl::StrCat("rank ", options_.rank, " destroyed a communicator with calls under way")));
  }
  driver_mutex_.Unlock();
}

void Engine::Abort(const absl::Status& cause) {
  sticky_->Set(cause);
  WakeDriver();
  WakeThread();
}

}  // namespace tutti
