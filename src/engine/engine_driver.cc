// How threads drive the engine: who takes the seat, how a driver polls, and how it sleeps.
#include <sched.h>

#include <algorithm>

#include "base/futex.h"
#include "engine/call.h"
#include "engine/engine.h"

namespace tutti {
namespace {

// The longest sleep of a driver that waits for a GPU, whose events ring no doorbell.
constexpr absl::Duration kDeviceSlice = absl::Microseconds(200);
// The sleep of a driver whose calls are all in the background, between two looks for messages. Such a driver does not
// wake up for every packet: what arrives meanwhile waits in the sockets' buffers.
constexpr absl::Duration kNap = absl::Milliseconds(10);

// The longest sleep while a channel fails, because its peers are about to leave its memory.
constexpr absl::Duration kFailingSlice = absl::Microseconds(500);

// For a caller that waits, which has nothing else to do: so much polling costs less than going to sleep and waking up.
// The polls take about 50 µs. They are for news in mapped memory: messages have MessageWait.
constexpr BackoffPolicy kEager = {.spins = 1500, .yields = 20};
// For a caller that waits where ranks share cores: the rank that it waits for may need this rank's core.
constexpr BackoffPolicy kYielding = {.spins = 0, .yields = 100};
// For the engine thread, whose core belongs to the user's computation.
constexpr BackoffPolicy kPatient = {.spins = 0, .yields = 2};

}  // namespace

bool Engine::TryToDrive(bool background) {
  if (claims_.load() > 0) return false;  // the thread that has claimed the seat will drive all runs
  if (seat_.TryLock()) return true;
  // The seat is claimed from the engine thread, because a caller that waits polls more eagerly.
  if (background || !thread_drives_.load(std::memory_order_relaxed)) return false;
  ClaimDriver();
  return true;
}

bool Engine::DriveOrSleep(Milestone& milestone, std::uint32_t run, bool background, absl::Duration left) {
  // A thread that leaves the seat after TryToDrive has found the seat taken sees this sleeper, and wakes the engine
  // thread.
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  const bool drives = TryToDrive(background);
  if (!drives) milestone.Sleep(run, std::min(kRestSlice, left));
  sleepers_.fetch_sub(1, std::memory_order_seq_cst);
  return drives;
}

// Ranks that are not bound may run on one processor although another one is free. To spin there would keep the peer
// from the very step that this rank waits for, until the system moves one of the two.
bool Engine::SharesProcessor() const {
  const int processor = sched_getcpu();
  if (presence_.processor.load(std::memory_order_relaxed) != processor) {
    presence_.processor.store(processor, std::memory_order_relaxed);
  }
  return std::any_of(options_.presence.begin(), options_.presence.end(), [&](const Presence* theirs) {
    return theirs != nullptr && theirs != &presence_ && processor >= 0 &&
           theirs->processor.load(std::memory_order_relaxed) == processor;
  });
}

const BackoffPolicy& Engine::PolicyOfWaiter() const {
  return options_.may_spin && !SharesProcessor() ? kEager : kYielding;
}

absl::Status Engine::Wait(const Call& call, Milestone& milestone, std::uint32_t run, std::int64_t end_ns) {
  if (in_forked_child()) return NotInForkedChild(options_.rank);
  const bool background = call.in_background();
  std::string wait;  // for whom the call waited when the time was over, if this thread drove then
  while (!milestone.passed(run)) {
    const std::int64_t left_ns = end_ns == kNeverNanos ? kNeverNanos : end_ns - options_.now_ns();
    if (left_ns <= 0) {
      WakeThread();  // the call may depend on this thread, which drives no longer
      return absl::DeadlineExceededError(absl::StrCat(
          "rank ", options_.rank, wait.empty() ? ": the call" : absl::StrCat(" waited ", wait, "; the call"),
          " has not ended in the time given to Wait, and goes on"));
    }
    if (!TryToDrive(background) && !DriveOrSleep(milestone, run, background, absl::Nanoseconds(left_ns))) continue;
    Drive({.milestone = &milestone, .run = run, .program = &call.program(), .end_ns = end_ns}, PolicyOfWaiter());
    if (end_ns != kNeverNanos && !milestone.passed(run)) {
      if (const std::int64_t now_ns = options_.now_ns(); now_ns >= end_ns) wait = TextOfWait(call, now_ns);
    }
    LeaveSeat();
  }
  return absl::OkStatus();
}

// Frees the seat, and wakes the engine thread where runs are left that somebody must drive: threads that wait for these
// runs, or that found the seat taken when they submitted one, may be asleep. Runs whose callers have promised to drive
// them do not count (needs_driver): the engine thread would only get in the way of a caller that waits for its Recv and
// then for its Send.
void Engine::LeaveSeat() {
  const bool busy = executor_->needs_driver() || failing_ > 0 || transport_->HoldsSent();
  FreeSeat();
  // A thread that submits a call, or goes to sleep, after these looks finds the seat free.
  if (busy || !queue_.empty() || sleepers_.load(std::memory_order_seq_cst) > 0) WakeThread();
}

void Engine::FreeSeat() {
  left_busy_.store(!executor_->idle(), std::memory_order_relaxed);
  seat_.Unlock();
}

void Engine::ThreadMain(std::uint32_t seen) {
  BeginThread();
  const bool alone = options_.presence.size() == 1;
  const absl::Duration tick = alone ? absl::Hours(1) : std::min(options_.idle_tick, absl::Hours(1));
  while (!stop_.load(std::memory_order_seq_cst)) {
    std::uint32_t calls = presence_.thread_calls.load(std::memory_order_seq_cst);
    if (calls == seen) {
      thread_sleeps_.store(true, std::memory_order_seq_cst);
      FutexWait(presence_.thread_calls, seen, tick);
      thread_sleeps_.store(false, std::memory_order_seq_cst);
      calls = presence_.thread_calls.load(std::memory_order_seq_cst);
    }
    if (calls == seen) {
      if (!seat_.TryLock()) continue;  // the thread that drives does what LookAround does (CheckHealth)
      LookAround(options_.now_ns());
      LeaveSeat();
      continue;
    }
    seen = calls;
    seat_.Lock();
    FailWhatPeersGaveUp();  // perhaps a peer that has given a channel up has woken this thread
    if (const std::int64_t now_ns = options_.now_ns(); IsTimeToLookAround(now_ns)) LookAround(now_ns);
    thread_drives_.store(true, std::memory_order_relaxed);
    const bool eager = eager_waits_.load(std::memory_order_relaxed) > 0;
    Drive({.eager = eager}, eager ? PolicyOfWaiter() : kPatient);
    thread_drives_.store(false, std::memory_order_relaxed);
    FreeSeat();
    if (!queue_.empty()) WakeThread();  // submitted while this thread was leaving the seat
  }
}

bool Engine::PollsOn(const Goal& goal, Backoff& backoff) {
  if (!executor_->waits_for_messages() || executor_->polls_device()) return backoff.Pause();
  // The engine thread, which has no program in particular, waits for all.
  if (!message_wait_.PollsOn(options_.now_ns(), goal.program)) return false;
  sched_yield();  // perhaps the peer that this thread waits for needs this core
  return true;
}

// Drives until the goal is reached, or until another thread wants to drive.
void Engine::Drive(const Goal& goal, const BackoffPolicy& policy) {
  Backoff backoff(policy);
  const bool is_engine_thread = goal.milestone == nullptr;
  const bool patient = is_engine_thread && !goal.eager;
  const auto reached = [&]() TUTTI_REQUIRES(seat_) {
    if (goal.milestone != nullptr) return goal.milestone->passed(goal.run);
    return executor_->idle() && queue_.empty() && !transport_->HoldsSent();
  };
  while (true) {
    const bool moved = Poll();
    if (moved) EndMessageWait();  // also the wait that the goal ends
    if (moved && is_engine_thread) thread_time_.EndWait();
    if (reached()) break;
    // A thread that claims the seat may be about to make the call for which the peers wait: no driver keeps the seat
    // until its own call has ended.
    if (claims_.load() > 0 || (is_engine_thread && stop_.load())) break;
    // The engine thread comes back here at once, with an eager goal, because BeginEagerWait has woken it.
    if (patient && eager_waits_.load() > 0) break;
    if (moved) {
      backoff.Reset();
      ShowAfterMove();
    } else {
      if (is_engine_thread) thread_time_.BeginWait();
      if (executor_->all_in_background() || !PollsOn(goal, backoff)) Rest(goal.end_ns, patient);
    }
    if (goal.end_ns != kNeverNanos && options_.now_ns() >= goal.end_ns) break;
  }
  if (is_engine_thread) thread_time_.EndWait();
  ShowAfterMove();
}

void Engine::Rest(std::int64_t end_ns, bool patient) {
  const std::int64_t now_ns = options_.now_ns();
  presence_.heartbeat_ns.store(now_ns, std::memory_order_relaxed);
  CheckHealth(now_ns);
  // No sleep lasts beyond the next deadline.
  const absl::Duration slice = std::clamp(absl::Nanoseconds(std::min(next_deadline_ns_, end_ns) - now_ns),
                                          absl::Microseconds(100), failing_ > 0 ? kFailingSlice : kRestSlice);
  driver_sleeps_.store(true, std::memory_order_seq_cst);
  presence_.sleeping.store(executor_->waits_for_completions() ? kAwaitsCompletions : kAwaitsNews,
                           std::memory_order_seq_cst);
  const std::uint32_t doorbell = presence_.doorbell.load(std::memory_order_seq_cst);
  // Poll finds what happened before the stores above; threads and ranks that bring something afterwards ring.
  if (Poll()) {
    EndMessageWait();
  } else if (!stop_.load() && claims_.load() == 0 && !(patient && eager_waits_.load() > 0)) {
    const bool holds_sent = transport_->HoldsSent();
    const bool messages = executor_->waits_for_messages() || holds_sent;
    const bool device = executor_->polls_device();
    const absl::Duration alarm =
        std::max(absl::Nanoseconds(message_wait_.alarm_ns(now_ns) - now_ns), absl::ZeroDuration());
    const absl::Duration longest = std::min({slice, alarm, device ? kDeviceSlice : slice});
    if (executor_->all_in_background() && !holds_sent && (messages || device)) {
      FutexWait(presence_.doorbell, doorbell, kNap);
      transport_->Drain();
    } else if (messages && executor_->waits_for_signals()) {
      SleepForNewsAndMessages(doorbell, longest);
    } else if (messages) {
      transport_->Sleep(absl::Now() + longest);
    } else if (executor_->waits_for_signals() || failing_ > 0) {
      FutexWait(presence_.doorbell, doorbell, longest);
    }
  }
  presence_.sleeping.store(kAwake, std::memory_order_relaxed);
  driver_sleeps_.store(false, std::memory_order_relaxed);
}

// No call of the kernel waits for a word in memory and for sockets at once, so the peers that would ring wake this rank
// in its transport. A peer counts the doorbell up before it looks where this rank sleeps: see Channel::Ring.
void Engine::SleepForNewsAndMessages(std::uint32_t doorbell, absl::Duration slice) {
  presence_.sleeps_in_transport.store(1, std::memory_order_seq_cst);
  if (presence_.doorbell.load(std::memory_order_seq_cst) == doorbell) transport_->Sleep(absl::Now() + slice);
  presence_.sleeps_in_transport.store(0, std::memory_order_seq_cst);
}

}  // namespace tutti
