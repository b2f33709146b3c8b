#include "engine/engine.h"

#include <sched.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/futex.h"
#include "engine/call.h"
#include "engine/channel.h"
#include "engine/hang.h"

namespace tutti {
namespace {

// A call that has been under way for so long, or for a quarter of its timeout if that is shorter, counts as held up.
constexpr absl::Duration kLongWait = absl::Milliseconds(200);
// A driver that always finds something to do checks its peers' health and its deadlines once in so many polls.
constexpr std::uint32_t kPollsBetweenLooks = 64;

// This long before a deadline, or half the timeout if that is shorter, ranks on other nodes are asked for whom they
// wait: time for several questions, one after the other, each answered within kRestSlice.
constexpr absl::Duration kLongestLead = absl::Seconds(2);

}  // namespace

Engine::Engine(std::shared_ptr<Transport> transport, std::shared_ptr<Arena> arena, std::unique_ptr<Executor> executor,
               EngineOptions options)
    : transport_(std::move(transport)),
      arena_(std::move(arena)),
      options_(std::move(options)),
      presence_(*options_.presence[static_cast<std::size_t>(options_.rank)]),
      executor_(std::move(executor)),
      looked_around_ns_(options_.now_ns()),
      inquiries_(*transport_, static_cast<int>(options_.presence.size())),
      leavers_(*transport_, options_.presence.size(), options_.now_ns) {
  transport_->ShowWaitsFor(&held_up_by_);
  // The counter is read before the thread exists: the thread may start after the first call, and must notice that call.
  const std::uint32_t calls = presence_.thread_calls.load(std::memory_order_seq_cst);
  thread_ = std::thread([this, calls] { ThreadMain(calls); });
  thread_time_.Start(thread_.native_handle());
}

Engine::~Engine() { Stop(); }

void Engine::Stop(const absl::Status& cause) {
  if (!thread_.joinable()) return;
  stop_.store(true, std::memory_order_seq_cst);
  WakeDriver();
  WakeThread();
  thread_.join();
  seat_.Lock();
  transport_->Shutdown(cause);
  seat_.Unlock();
  callbacks_.Stop();
}

void Engine::Submit(Call& call, const CallOptions& options) {
  if (call.program().stream_order != nullptr && EnqueueAtOnce(call, options)) return;
  const bool may_begin = options.caller_drives && !options.background && call.program().is_short;
  if (may_begin && BeginAtOnce(call)) return;
  call.KeepForEngine();
  queue_.Push(&call);
  WakeDriver();
  if (!options.caller_drives) WakeThread();
}

bool Engine::EnqueueAtOnce(Call& call, const CallOptions& options) {
  if (absl::Status marked = call.run().OnSubmit(options); !marked.ok()) {
    AbortUnlessInvalid(call.run().channel, marked);
    call.Finish(marked);
    return true;
  }
  if (in_forked_child() || claims_.load() > 0 || !seat_.TryLock()) return false;
  const bool may_enqueue = queue_.empty() && failing_ == 0;
  if (may_enqueue) {
    call.KeepForEngine();
    TakeIn(call);
    Advance();
  }
  LeaveSeat();  // the engine thread sees the end of the run
  return may_enqueue;
}

// Often the run has ended when this function returns, and Wait has nothing to do.
bool Engine::BeginAtOnce(Call& call) {
  // left_busy_ is a hint that other runs are under way, with which this run would only be queued. The seat is then left
  // alone, because a thread that finds the seat taken must be woken afterwards (LeaveSeat).
  if (in_forked_child() || left_busy_.load(std::memory_order_relaxed) || claims_.load() > 0) return false;
  if (!seat_.TryLock()) return false;
  if (!executor_->idle() || !queue_.empty()) {
    LeaveSeat();
    return false;
  }
  // A run may be begun before Advance only when all is well: otherwise Advance first has to end failed or aborted
  // calls.
  const bool all_well = failing_ == 0 && !call.run().channel.failure.begun && !call.run().channel.peer_failed() &&
                        !aborted_.load(std::memory_order_seq_cst);
  if (!all_well) TakeIn(call);
  if (all_well && executor_->RunAtOnce(call.run())) {
    LookAtHealthNowAndThen();
  } else {
    Advance();
    if (!executor_->idle()) call.KeepForEngine();
  }
  const bool others_wait = failing_ > 0 || transport_->HoldsSent();
  FreeSeat();
  // The run itself needs no other thread, because its caller has promised to drive it. But a thread that found the seat
  // taken meanwhile has queued its call, a failure that has begun needs a driver until it is over, and a peer may wait
  // for what the transport has not sent yet: an answer to a question that was taken in beside the run.
  if (others_wait || !queue_.empty()) WakeThread();
  return true;
}

void Engine::BeginEagerWait() {
  eager_waits_.fetch_add(1, std::memory_order_seq_cst);
  WakeDriver();
  WakeThread();
}

void Engine::WakeDriver() {
  if (!driver_sleeps_.load(std::memory_order_seq_cst)) return;
  presence_.doorbell.fetch_add(1, std::memory_order_seq_cst);
  FutexWakeAll(presence_.doorbell);
  transport_->Wake();
}

void Engine::WakeThread() {
  presence_.thread_calls.fetch_add(1, std::memory_order_seq_cst);
  if (thread_sleeps_.load(std::memory_order_seq_cst)) FutexWakeAll(presence_.thread_calls);
}

void Engine::ClaimDriver() {
  claims_.fetch_add(1, std::memory_order_seq_cst);
  WakeDriver();
  seat_.Lock();
  claims_.fetch_sub(1, std::memory_order_seq_cst);
}

bool Engine::TakeSubmissions() {
  if (queue_.empty()) return false;
  for (Call* call = queue_.TakeAll(); call != nullptr;) {
    Call* const next = call->next_submitted.load(std::memory_order_relaxed);
    TakeIn(*call);
    call = next;
  }
  return true;
}

void Engine::TakeIn(Call& call) {
  Channel::Failure& failure = call.run().channel.failure;
  if (failure.over) ++failing_;  // EndFailures ends this call too
  failure.over = false;
  executor_->Add(call.run());
}

bool Engine::Advance() {
  FailWhatWasGivenUp();
  const Executor::Polled polled = executor_->Poll();
  bool moved = polled != Executor::Polled::kNothing;
  // The executor lets messages move only while one of its own is under way.
  if (!executor_->waits_for_messages() && transport_->HoldsSent()) moved |= transport_->Progress();
  if (polled == Executor::Polled::kFailed) {
    TakeInNews();  // a peer that took its messages back may have told the reason before
    Fail(executor_->failed_channel(), executor_->error());
  }
  LookAtHealthNowAndThen();
  if (failing_ > 0) moved |= EndFailures();
  return moved;
}

void Engine::LookAtHealthNowAndThen() {
  if (++polls_ % kPollsBetweenLooks == 0) CheckHealth(options_.now_ns());
}

void Engine::DrainTransport(std::int64_t now_ns) {
  looked_around_ns_ = now_ns;
  transport_->Drain();
}

void Engine::LookAround(std::int64_t now_ns) {
  DrainTransport(now_ns);
  TakeInNews();
  Poll();
}

void Engine::CheckHealth(std::int64_t now_ns) {
  const bool recently_checked = now_ns - last_check_ns_ < absl::ToInt64Nanoseconds(kRestSlice) / 2;
  next_deadline_ns_ = kNeverNanos;
  for (Run* const run : executor_->active()) {
    if (run->channel.failure.begun) continue;
    if (run->watch.first_seen_ns == 0) run->watch.first_seen_ns = now_ns;
    std::int64_t& deadline_ns = run->watch.deadline_ns;
    // A receive may be posted long before its message is due: its clock starts when somebody waits for it. A receive on
    // a stream holds up what follows there, and perhaps only another stream waits.
    const bool counts = run->program.plan.spec.collective != Collective::kRecv || run->program.stream_order != nullptr;
    if (deadline_ns == 0 && (counts || run->call.awaited())) deadline_ns = NanosAfter(now_ns, TimeoutOf(*run));
    if (deadline_ns != 0) next_deadline_ns_ = std::min(next_deadline_ns_, deadline_ns);
  }
  if (recently_checked && now_ns < next_deadline_ns_) return;
  if (IsTimeToLookAround(now_ns)) DrainTransport(now_ns);
  TakeInNews();
  leavers_.BeginLook();
  for (Run* const run : executor_->active()) {
    if (run->channel.failure.begun) continue;
    const absl::Status status = CheckRun(*run, now_ns);
    if (status.ok()) continue;
    if (absl::IsDeadlineExceeded(status)) run->channel.failure.awaited = AwaitedBy(*run);
    Fail(run->channel, status);
  }
  leavers_.EndLook();
  Show(FindHeldUp(now_ns));
  last_check_ns_ = options_.now_ns();  // a check may take long
}

absl::Duration Engine::TimeoutOf(const Run& run) const {
  const absl::Duration its_own = run.call.options().timeout;
  return its_own > absl::ZeroDuration() ? its_own : options_.timeout;
}

absl::Status Engine::CheckRun(Run& run, std::int64_t now_ns) {
  if (absl::Status status = run.channel.CompareCalls(run); !status.ok()) return status;
  // A run that has not begun waits for one peer, and would not hear that another one has left.
  if (!run.started() && run.program.uses_lane) {
    if (absl::Status status = run.channel.CheckNobodyLeftWithout(run); !status.ok()) return status;
  }
  if (absl::Status status = CheckLeavers(run); !status.ok()) return status;
  if (run.watch.deadline_ns == 0) return absl::OkStatus();
  if (now_ns >= run.watch.deadline_ns) {
    absl::Status overdue = Overdue(run, now_ns);
    // A peer whose deadline has passed just before waits for nobody any more, and answers so. Such a peer has told
    // before why it gave the channel up: where that has arrived, the peer's error counts in place of this one.
    TakeInNews();
    return overdue;
  }
  const std::int64_t lead_ns = absl::ToInt64Nanoseconds(std::min(TimeoutOf(run) / 2, kLongestLead));
  if (now_ns >= run.watch.deadline_ns - lead_ns) AskWhoHoldsUp(run, now_ns);
  return absl::OkStatus();
}

// Some signals and messages of a rank that has left may not have been looked at yet: only a call that has not moved
// between two checks waits in vain.
absl::Status Engine::CheckLeavers(Run& run) {
  const Channel& channel = run.channel;
  Rank stayed = kNobody;  // a peer that has not left: often the next blocking step is of this peer too
  const std::optional<Blocker> leaver = run.FindBlocker([&](const Blocker& blocker) {
    if (blocker.peer == stayed) return false;
    stayed = blocker.peer;
    return channel.HasLeftWithout(run, blocker.peer);
  });
  if (!leaver.has_value()) {
    run.watch.steps_left_when_stuck = Watch::kNotStuck;
    return absl::OkStatus();
  }
  // Messages that the leaver sent before, and its note why it gave the group up, may have arrived and not been taken
  // in.
  DrainTransport(options_.now_ns());
  TakeInNews();
  const bool stuck = run.watch.steps_left_when_stuck == run.steps_left();
  run.watch.steps_left_when_stuck = run.steps_left();
  if (!stuck) return absl::OkStatus();
  const std::string who = leaver->peer == kAnySource
                              ? "every other rank of the group has left (destroyed its communicator, or ended)"
                              : TextOfLeaver(channel.peer(leaver->peer).world_rank);
  // A rank often leaves without a call because it has lost a rank outside the group, which this rank knows, too.
  const absl::Span<const Loss> losses = transport_->Check().first(losses_seen_);
  const std::string known = losses.empty() ? "" : absl::StrCat("; known, too: ", losses.back().cause.message());
  return absl::UnavailableError(
      absl::StrCat(who, " without ", run.Text(), ", for which rank ", options_.rank, " waits", known));
}

Rank Engine::AwaitedBy(const Run& run) const {
  const Channel& channel = run.channel;
  const std::optional<Blocker> blocker = run.FirstBlocker();
  const Rank direct = blocker.has_value() ? blocker->peer : channel.rank();
  if (direct == kAnySource) return kNobody;
  const std::optional<Rank> absent =
      run.program.point_to_point ? std::nullopt : channel.HasNotCalled(run.ticket, direct);
  const Rank awaited = channel.peer(absent.value_or(direct)).world_rank;
  return awaited == options_.rank ? kNobody : awaited;
}

// The chain of ranks that wait for each other ends at a rank that neither shows in memory nor answers for whom it
// waits.
std::optional<Rank> Engine::WhoHoldsUp(Rank awaited, std::int64_t now_ns) {
  const int size = static_cast<int>(options_.presence.size());
  return FindStalledRank(size, options_.rank, awaited, [&](Rank rank) TUTTI_REQUIRES(seat_) {
    const Presence* const theirs = options_.presence[static_cast<std::size_t>(rank)];
    return theirs != nullptr ? WaitsFor(*theirs, now_ns) : inquiries_.AnswerOf(rank, now_ns);
  });
}

void Engine::AskWhoHoldsUp(const Run& run, std::int64_t now_ns) {
  const Rank awaited = AwaitedBy(run);
  if (awaited == kNobody) return;
  for (const Rank rank : {awaited, WhoHoldsUp(awaited, now_ns).value_or(awaited)}) {
    if (options_.presence[static_cast<std::size_t>(rank)] == nullptr) inquiries_.Ask(rank, now_ns);
  }
}

// Only a call that has been under way for a while counts: a rank that works in one group waits in this group for
// moments all the time, and may be the very rank that holds up another group.
bool Engine::WaitsLong(const Run& run, std::int64_t now_ns) const {
  if (run.watch.first_seen_ns == 0) return false;
  return absl::Nanoseconds(now_ns - run.watch.first_seen_ns) >= std::min(TimeoutOf(run) / 4, kLongWait);
}

// Of several calls that wait, the oldest counts that does not wait in a circle: ranks that wait for each other in
// different calls would hide the rank that holds up all of them.
Engine::HeldUp Engine::FindHeldUp(std::int64_t now_ns) {
  HeldUp held_up;
  for (const Run* const run : executor_->active()) {
    if (!WaitsLong(*run, now_ns)) continue;
    // A call that has failed is still waited for until its memory and messages are back. Its peers hold it up no more,
    // except the one that has not come in time.
    const Channel::Failure& failure = run->channel.failure;
    const Rank awaited = failure.begun ? failure.awaited.value_or(kNobody) : AwaitedBy(*run);
    if (awaited == kNobody) continue;
    const std::optional<Rank> culprit = WhoHoldsUp(awaited, now_ns);
    if (culprit.has_value()) return {.awaited = awaited, .culprit = *culprit};
    if (held_up.awaited == kNobody) held_up = {.awaited = awaited, .culprit = awaited};
  }
  return held_up;
}

// Peers that map this rank's memory are shown the rank for which this rank waits. Peers that ask are told the rank at
// the end of the chain of ranks that wait for each other, so that few questions are enough for a long chain.
void Engine::Show(HeldUp held_up) {
  presence_.waits_for.store(held_up.awaited, std::memory_order_relaxed);
  held_up_by_.store(held_up.culprit, std::memory_order_relaxed);
}

// After a call has moved, another call may still wait: what is shown is computed anew.
void Engine::ShowAfterMove() {
  if (presence_.waits_for.load(std::memory_order_relaxed) == kNobody) return;
  if (executor_->active().empty()) return Show({});
  const std::int64_t now_ns = options_.now_ns();
  if (now_ns - last_move_shown_ns_ < absl::ToInt64Nanoseconds(kRestSlice) / 2) return;
  last_move_shown_ns_ = now_ns;
  presence_.heartbeat_ns.store(now_ns, std::memory_order_relaxed);
  Show(FindHeldUp(now_ns));
}

absl::Status Engine::Overdue(const Run& run, std::int64_t now_ns) {
  return absl::DeadlineExceededError(absl::StrCat("rank ", options_.rank, " waited ",
                                                  absl::FormatDuration(TimeoutOf(run)), " ", TextOfWait(run, now_ns)));
}

std::string Engine::TextOfWait(const Run& run, std::int64_t now_ns) {
  const std::optional<Blocker> blocker = run.FirstBlocker();
  return absl::StrCat("for ", WhoIsOverdue(run, now_ns), " in ", run.Text(), ", at ",
                      blocker.has_value() ? blocker->Place() : "its end");
}

std::string Engine::TextOfWait(const Call& call, std::int64_t now_ns) {
  const absl::Span<Run* const> active = executor_->active();
  const auto found = std::find_if(active.begin(), active.end(), [&](const Run* one) { return &one->call == &call; });
  if (found == active.end()) return "";
  const Run& run = **found;
  // A call that has failed waits for its memory and messages, and no more for the ranks that it would name.
  if (run.channel.failure.begun) return "";
  // A stream may wait for what its own GPU has still to do.
  const bool on_stream = run.program.stream_order != nullptr;
  const bool may_be_own = on_stream && (run.program.point_to_point || !run.channel.HasNotCalled(run.ticket, 0));
  return may_be_own ? "" : TextOfWait(run, now_ns);
}

std::string Engine::WhoIsOverdue(const Run& run, std::int64_t now_ns) {
  const std::optional<Blocker> blocker = run.FirstBlocker();
  if (blocker.has_value() && blocker->peer == kAnySource) return "any rank";
  const Rank awaited = AwaitedBy(run);
  const bool waits_for_itself = run.program.point_to_point && awaited == kNobody;
  std::optional<Rank> culprit;
  if (awaited != kNobody) culprit = WhoHoldsUp(awaited, now_ns);
  if (!culprit.has_value() && !waits_for_itself) culprit = FindHeldUp(now_ns).culprit;
  if (culprit.value_or(kNobody) == kNobody) culprit = options_.rank;
  const std::string through =
      *culprit == awaited || awaited == kNobody ? "" : absl::StrCat(" (through rank ", awaited, ", which waits too)");
  return absl::StrCat("rank ", *culprit, through);
}

std::vector<Rank> Engine::GoneFrom(const Channel& channel) {
  std::vector<Rank> ranks;
  ClaimDriver();
  std::vector<Rank> lost_ranks;  // HasLeft below may find further losses, and move the list
  for (const Loss& loss : transport_->Check()) lost_ranks.push_back(loss.peer);
  for (Rank rank = 0; rank < channel.size(); ++rank) {
    const bool lost =
        std::find(lost_ranks.begin(), lost_ranks.end(), channel.peer(rank).world_rank) != lost_ranks.end();
    if (rank != channel.rank() && (lost || channel.HasLeft(rank))) ranks.push_back(rank);
  }
  LeaveSeat();
  return ranks;
}

std::optional<std::uint32_t> Engine::TakeNumber() {
  const std::optional<std::uint32_t> number = numbers_.Take();
  if (!number.has_value()) return std::nullopt;
  ClaimDriver();
  transport_->Accept(*number);
  LeaveSeat();
  return number;
}

void Engine::GiveNumberBack(std::uint32_t number, std::vector<Rank> away) {
  ClaimDriver();
  transport_->Discard(number);
  numbers_.Close(number, nullptr, std::move(away));
  LeaveSeat();
}

void Engine::Open(Channel& channel) {
  ClaimDriver();
  channels_.push_back(&channel);
  SeeWhoHasEnded();
  const absl::Span<const Loss> losses = transport_->Check();
  for (std::size_t i = 0; i < losses_seen_; ++i) {
    if (channel.RankOf(losses[i].peer).has_value()) Fail(channel, losses[i].cause);
  }
  const std::deque<Note> early = std::exchange(early_notes_, {});
  for (const Note& note : early) TakeInNote(note);
  LeaveSeat();
}

void Engine::Close(Channel& channel) {
  ClaimDriver();
  Poll();
  if (executor_->Uses(channel)) {
    Fail(channel,
         absl::AbortedError(absl::StrCat("rank ", options_.rank, " destroyed a communicator with calls under way")));
  }
  while (channel.failure.begun && !channel.failure.over) {
    if (!Poll()) Rest(kNeverNanos, /*patient=*/false);
    if (claims_.load() == 0) continue;
    FreeSeat();
    ClaimDriver();
  }
  channel.SayGoodbye();
  transport_->Discard(channel.number());
  world_closed_ |= channel.number() == 0;
  std::erase(channels_, &channel);
  std::vector<Rank> away = channel.Away();
  for (const Loss& loss : transport_->Check()) std::erase(away, loss.peer);
  numbers_.Close(channel.number(), channel.borrowers(), std::move(away));
  LeaveSeat();
  FreeUnused();
}

void Engine::FreeLater(Call* call) {
  const MutexLock lock(unused_mutex_);
  unused_.push_back(call);
  has_unused_.store(true, std::memory_order_relaxed);
}

void Engine::FreeUnused() {
  if (!has_unused_.load(std::memory_order_relaxed)) return;
  std::vector<Call*> unused;
  {
    const MutexLock lock(unused_mutex_);
    unused.swap(unused_);
    has_unused_.store(false, std::memory_order_relaxed);
  }
  for (Call* const call : unused) delete call;
}

void Engine::Abort(Channel& channel, const absl::Status& cause) {
  channel.sticky().Set(!cause.ok()
                           ? cause
                           : absl::InvalidArgumentError(absl::StrCat(
                                 "rank ", options_.rank, " called Abort with an OK status, which is no cause")));
  aborted_.store(true, std::memory_order_seq_cst);
  WakeDriver();
  WakeThread();
}

void Engine::AbortUnlessInvalid(Channel& channel, const absl::Status& error) {
  if (!absl::IsInvalidArgument(error)) Abort(channel, error);
}

void Engine::AbortIfOpen(Channel& channel, const absl::Status& cause) {
  ClaimDriver();
  if (std::find(channels_.begin(), channels_.end(), &channel) != channels_.end()) Fail(channel, cause);
  LeaveSeat();
}

}  // namespace tutti
