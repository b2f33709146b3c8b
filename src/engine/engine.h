// Drives the executor of one rank: submission, waiting, sleeping, deadlines and failure.
#ifndef TUTTI_ENGINE_ENGINE_H_
#define TUTTI_ENGINE_ENGINE_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/fork.h"
#include "base/mutex.h"
#include "engine/backoff.h"
#include "engine/callback_threads.h"
#include "engine/channel_numbers.h"
#include "engine/control_block.h"
#include "engine/driver_seat.h"
#include "engine/executor.h"
#include "engine/inquiries.h"
#include "engine/leavers.h"
#include "engine/message_wait.h"
#include "engine/run.h"
#include "engine/submission_queue.h"
#include "engine/thread_time.h"
#include "tutti/transport.h"

namespace tutti {

class Arena;
class Call;
class Channel;
class ChannelOnDevice;
class NativeTransport;

struct EngineOptions {
  Rank rank = 0;  // this rank's number in the world
  absl::Duration timeout;
  // The presence words of every rank, by rank of the world; nullptr where the rank's memory is not mapped. This rank's
  // own entry is never nullptr.
  std::vector<Presence*> presence;
  // A waiting thread may spin for some microseconds, because the ranks of this node do not outnumber its cores. The
  // thread does not spin where another rank was the last to wait on the same processor.
  bool may_spin = false;
  // How often a rank, also one that has nothing to do, looks for peers that say goodbye, ask for whom this rank waits,
  // or need a message of theirs to be thrown away.
  absl::Duration idle_tick = absl::Milliseconds(200);
  // Nanoseconds of CLOCK_MONOTONIC; tests have a clock of their own.
  std::int64_t (*now_ns)() = MonotonicNanos;
};

// One thread at a time drives: whoever waits for a call, or else the engine's own thread, which sleeps unless
// something was submitted that nobody waits for. The transport is touched by the driver only.
//
// Time: a call fails when its timeout (CallOptions::timeout, or else that of the engine) has passed on the call's
// clock. The clock starts when a driver, after some polls or when it first rests, looks at the time for the first time
// after the call got its place in the order of calls; the clock of a Recv starts no earlier than somebody waits for the
// Recv. All calls under way are looked at, not the oldest alone. The error names the rank that holds up all others:
// ranks of one node show in memory for whom they wait (of several calls, in the oldest that is not in a circle), and
// shortly before the deadline the engine asks the ranks of other nodes.
//
// Failure: the first error of a channel ends every call of the channel, on all its ranks, and no call of another one. A
// rank that is lost (dead, or one that takes no messages) ends the channels that the rank is in. Before a call ends
// with the error, two things have happened:
// - This rank has told the peers (in their control blocks, which they see at once, or over the transport), and no step
//   of a peer writes to the memory of the call any more: the engine waits until the peers have left it, and after 40 ms
//   takes the outputs out of the reach of those that have not, which may be stopped (Transport::Seclude). A stopped
//   peer may still read an input, and may still write to output that shares a page with other memory
//   (docs/decisions/0016). Where the peers are threads, or there is no memory for a copy, the engine waits for up to
//   30 s instead, and gives up then.
// - No message of the channel is under way: receives have been cancelled, sends taken or thrown away by the peers
//   (Transport::Discard), whose engine threads look for that every 200 ms. When no message has come back for a second
//   (longer where a Send or Recv has a long message), the peers of those that are left are given up
//   (Transport::Disconnect); if a message is still not back a second later, the whole transport is shut down.
// The driver never waits for any of that: calls of other channels go on meanwhile. But it waits for up to two seconds
// until the native transport of a channel has given up what is on a stream (Executor::Abandon).
class Engine : public std::enable_shared_from_this<Engine> {
 public:
  Engine(std::shared_ptr<Transport> transport, std::shared_ptr<Arena> arena, std::unique_ptr<Executor> executor,
         EngineOptions options);
  ~Engine();
  // To be called when every channel is closed. Returns when all callbacks have run (unless a callback calls Stop) and
  // the engine's threads have ended. The peers hear `cause`; OK is an orderly goodbye. The engine object lives on as
  // long as calls that are still held, but does nothing any more.
  void Stop(const absl::Status& cause = absl::OkStatus());

  // To be called before the first call of `program`: see Executor::MakeRunnable.
  absl::Status MakeRunnable(const Program& program) const TUTTI_NO_THREAD_SAFETY_ANALYSIS {
    return executor_->MakeRunnable(program);
  }
  // Makes the Run that carries out `call`: see Executor::NewRun.
  std::unique_ptr<Run> NewRun(Call& call, Channel& channel, const Program& program,
                              void* scratch) TUTTI_NO_THREAD_SAFETY_ANALYSIS {
    FreeUnused();
    return executor_->NewRun(call, channel, program, scratch);
  }
  // Makes the next run of `call`, and waits for no lock: takes the steps of the run at once, where the run is short,
  // the caller drives, and nothing else is to be done; otherwise queues the run. The first way sometimes looks after
  // the transport as well, for ten milliseconds at most.
  void Submit(Call& call, const CallOptions& options);
  // Returns when run number `run` of `call` has come to `milestone`, which belongs to the call; DeadlineExceeded when
  // the run has not come there by `end_ns`. Where the call is one in the background, the engine thread keeps the
  // driver's seat if it has the seat. FailedPrecondition, at once, in a forked child.
  absl::Status Wait(const Call& call, Milestone& milestone, std::uint32_t run, std::int64_t end_ns);
  // Between BeginEagerWait and EndEagerWait the engine's thread polls as eagerly as a thread in Wait does, because
  // somebody waits elsewhere (Work::AwaitElsewhere).
  void BeginEagerWait();
  void EndEagerWait() { eager_waits_.fetch_sub(1, std::memory_order_relaxed); }
  // Lets the engine's thread drive until nothing is left to do, or another thread wants to drive.
  void WakeThread();
  // Ends all calls of `channel`. InvalidArgument is the cause when `cause` is OK.
  void Abort(Channel& channel, const absl::Status& cause);
  // Ends all calls of `channel`, on all ranks, for want of a call on a GPU that this rank could not make because of
  // `error`: the rank's later calls would meet others of its peers. InvalidArgument ends nothing, since the caller can
  // call anew.
  void AbortUnlessInvalid(Channel& channel, const absl::Status& error);
  // Ends all calls of `channel` with `cause`, unless the channel is closed: it may be gone then.
  void AbortIfOpen(Channel& channel, const absl::Status& cause);
  // Takes a number for a channel that is about to be opened; nullopt when all numbers are in use. The peers may send
  // messages on the channel as soon as they know the number.
  std::optional<std::uint32_t> TakeNumber();
  // Gives back a number with which no channel was opened here. Other ranks may have opened their channels and sent
  // something to this rank; `away` are the ranks of the world that may have, and whose memory is not mapped.
  void GiveNumberBack(std::uint32_t number, std::vector<Rank> away);
  // Makes `channel` hear of failures from now on, also when it has no calls.
  void Open(Channel& channel);
  // Gives `channel` what it needs for programs with a Program::stream_order, before the first of its calls of them.
  void SetOnDevice(Channel& channel, std::unique_ptr<ChannelOnDevice> on_device);
  // Gives native steps of `group` of the plans of `channel` their transport, before the first call that has such steps.
  void AddOnDevice(Channel& channel, std::vector<Rank> group, std::unique_ptr<NativeTransport> native);
  // Called before `channel` goes away: calls that are still under way on it end now, with Aborted. Waits as long as the
  // end of a failed channel takes (above).
  void Close(Channel& channel);

  // Deletes `call`, of a program with a stream_order, when a call is made or a channel closed next. For the driver:
  // memory of a device is freed when all work of the device has ended, and such work may wait for the driver.
  void FreeLater(Call* call);

  // Whether a rank of the world has ended, as far as this rank had seen when it last lost a rank or opened a channel:
  // see Transport::HasEnded. Outlives the engine.
  std::shared_ptr<const std::atomic<bool>> ended(Rank world_rank) const {
    return {ended_, &(*ended_)[static_cast<std::size_t>(world_rank)]};
  }
  CallbackThreads& callbacks() { return callbacks_; }
  // Counted by the driver, read by any thread: see Executor.
  std::int64_t calls() const TUTTI_NO_THREAD_SAFETY_ANALYSIS { return executor_->calls(); }
  std::int64_t wire_bytes() const TUTTI_NO_THREAD_SAFETY_ANALYSIS { return executor_->wire_bytes(); }
  std::int64_t staged_bytes() const TUTTI_NO_THREAD_SAFETY_ANALYSIS { return executor_->staged_bytes(); }
  const ThreadTime& thread_time() const { return thread_time_; }
  const EngineOptions& options() const { return options_; }
  Transport& transport() const { return *transport_; }
  // For the driver, in a look at the health of peers.
  Leavers& leavers() TUTTI_NO_THREAD_SAFETY_ANALYSIS { return leavers_; }
  // The ranks of `channel` that make no more calls on it: ranks that are lost (dead, shut down with an error, or given
  // up), and ranks that have left the channel or the world.
  std::vector<Rank> GoneFrom(const Channel& channel);
  bool in_forked_child() const { return !maker_.is_this(); }

 private:
  // The goal of a thread that drives: that a run comes to a milestone, or a time comes; by default that nothing is left
  // to do.
  struct Goal {
    const Milestone* milestone = nullptr;
    std::uint32_t run = 0;
    const Program* program = nullptr;  // of the run
    std::int64_t end_ns = kNeverNanos;
    bool eager = false;  // somebody waits elsewhere, so the engine thread polls eagerly
  };
  void Drive(const Goal& goal, const BackoffPolicy& policy) TUTTI_REQUIRES(seat_);
  // Called after a poll that found nothing, by a thread with this goal; false when it is time to sleep.
  bool PollsOn(const Goal& goal, Backoff& backoff) TUTTI_REQUIRES(seat_);
  // Called after a poll that found something. Reads the clock only where a wait ends: most polls of a node's own calls
  // end none.
  void EndMessageWait() TUTTI_REQUIRES(seat_) {
    if (message_wait_.is_waiting()) message_wait_.Ended(options_.now_ns());
  }
  // Whether another rank of this node waited last on the processor that this thread runs on. Tells peers the processor.
  bool SharesProcessor() const;
  // How a thread polls while it waits.
  const BackoffPolicy& PolicyOfWaiter() const;
  // Takes in what was submitted, and advances all runs; true when anything moved.
  bool Poll() TUTTI_REQUIRES(seat_) {
    const bool taken = TakeSubmissions();
    return Advance() || taken;
  }
  bool Advance() TUTTI_REQUIRES(seat_);
  // Enqueues the next run of `call`, which works on a stream, on this thread, so that the caller can let streams wait
  // for the run. False when another thread drives, or something else is to be done first: only the input is marked
  // then. A run whose input cannot be marked ends at once with the reason, and counts for no other rank.
  bool EnqueueAtOnce(Call& call, const CallOptions& options);
  // Begins the next run of `call` on this thread, and advances it. False when another thread drives, or something else
  // is to be done: nothing has been done for `call` then.
  bool BeginAtOnce(Call& call);
  // A rank that waits looks after its peers' health and its deadlines at least this often.
  static constexpr absl::Duration kRestSlice = absl::Milliseconds(50);
  // Sleeps until a signal, a message or a submission arrives, at most until `end_ns` and for kRestSlice; not at all
  // where `patient` and somebody waits elsewhere (BeginEagerWait).
  void Rest(std::int64_t end_ns, bool patient) TUTTI_REQUIRES(seat_);
  // Sleeps for `slice`, or until a message or a peer's ring comes; not at all where `doorbell` is no longer the count
  // of the rings.
  void SleepForNewsAndMessages(std::uint32_t doorbell, absl::Duration slice) TUTTI_REQUIRES(seat_);
  // Takes calls in from the queue; true when there were any.
  bool TakeSubmissions() TUTTI_REQUIRES(seat_);
  void TakeIn(Call& call) TUTTI_REQUIRES(seat_);
  // Takes in all messages that have arrived. Due every idle_tick, whatever else there is to do: peers wait for answers.
  void DrainTransport(std::int64_t now_ns) TUTTI_REQUIRES(seat_);
  // What a rank does when it has nothing else to do: receives messages and takes in news from peers.
  void LookAround(std::int64_t now_ns) TUTTI_REQUIRES(seat_);
  bool IsTimeToLookAround(std::int64_t now_ns) const TUTTI_REQUIRES(seat_) {
    return now_ns - looked_around_ns_ >= absl::ToInt64Nanoseconds(options_.idle_tick);
  }
  void LookAtHealthNowAndThen() TUTTI_REQUIRES(seat_);
  void CheckHealth(std::int64_t now_ns) TUTTI_REQUIRES(seat_);
  absl::Status CheckRun(Run& run, std::int64_t now_ns) TUTTI_REQUIRES(seat_);
  // Unavailable when `run` waits for a rank that has left.
  absl::Status CheckLeavers(Run& run) TUTTI_REQUIRES(seat_);
  // The error of `run`, whose deadline has passed.
  absl::Status Overdue(const Run& run, std::int64_t now_ns) TUTTI_REQUIRES(seat_);
  // "for rank 2 in call 3, …, at step 4": for whom `run` waits, and where, for an error.
  std::string TextOfWait(const Run& run, std::int64_t now_ns) TUTTI_REQUIRES(seat_);
  // TextOfWait of the run of `call` that is under way; empty when none is, and where it is not known who is awaited.
  std::string TextOfWait(const Call& call, std::int64_t now_ns) TUTTI_REQUIRES(seat_);
  // For whom `run` waits in vain, for an error: "rank 2 (through rank 1, which waits too)".
  std::string WhoIsOverdue(const Run& run, std::int64_t now_ns) TUTTI_REQUIRES(seat_);
  absl::Duration TimeoutOf(const Run& run) const;
  // The rank of the world for which `run` waits: a rank that is known not to have made the call, since such a rank
  // holds up all others however they wait for each other, or else the peer of the run's next step; -1: none.
  Rank AwaitedBy(const Run& run) const;
  // Follows who waits for whom from `awaited` on, as far as ranks show that in memory or have answered; nullopt in a
  // circle.
  std::optional<Rank> WhoHoldsUp(Rank awaited, std::int64_t now_ns) TUTTI_REQUIRES(seat_);
  void AskWhoHoldsUp(const Run& run, std::int64_t now_ns) TUTTI_REQUIRES(seat_);
  // The rank for which this rank waits, and the rank that holds up that rank in turn.
  static constexpr Rank kNobody = -1;
  struct HeldUp {
    Rank awaited = kNobody;
    Rank culprit = kNobody;
  };
  bool WaitsLong(const Run& run, std::int64_t now_ns) const;
  HeldUp FindHeldUp(std::int64_t now_ns) TUTTI_REQUIRES(seat_);
  void Show(HeldUp held_up) TUTTI_REQUIRES(seat_);
  // Computes anew what Show shows, which may have changed because a call has moved.
  void ShowAfterMove() TUTTI_REQUIRES(seat_);
  // ---- engine_failure.cc ----
  // Begins the failure of `channel`, unless it has begun.
  void Fail(Channel& channel, const absl::Status& cause) TUTTI_REQUIRES(seat_);
  // Begins the failure of the channels for which Abort was called, and of those with calls under way that a peer has
  // given up.
  void FailWhatWasGivenUp() TUTTI_REQUIRES(seat_);
  // Begins the failure of `channel` if a peer has told in memory that it has given the channel up.
  void FailIfGivenUp(Channel& channel) TUTTI_REQUIRES(seat_);
  // Begins the failure of all channels that a peer has given up, whether calls are under way or not.
  void FailWhatPeersGaveUp() TUTTI_REQUIRES(seat_);
  // Takes in the peers that the transport has lost, and what peers have told.
  void TakeInNews() TUTTI_REQUIRES(seat_);
  // Looks which lost ranks have ended: ended().
  void SeeWhoHasEnded() TUTTI_REQUIRES(seat_);
  void TakeInNote(const Note& note) TUTTI_REQUIRES(seat_);
  // Ends the failures whose memory is back; true when there were any.
  bool EndFailures() TUTTI_REQUIRES(seat_);
  // Whether no peer writes to the memory of the calls of `channel` any more.
  bool MemoryIsBack(Channel& channel, std::int64_t now_ns) TUTTI_REQUIRES(seat_);
  // Whether no message of `channel` is under way any more.
  bool MessagesAreBack(Channel& channel, std::int64_t now_ns) TUTTI_REQUIRES(seat_);
  bool SecludeOutputs(const Channel& channel) TUTTI_REQUIRES(seat_);
  // Whether no device works for the calls of `channel` any more, or has had half a minute to end.
  bool DeviceHasLetGo(const Channel& channel, std::int64_t now_ns) TUTTI_REQUIRES(seat_);
  // ---- engine_driver.cc, and ClaimDriver, WakeDriver and FreeUnused in engine.cc ----
  void LeaveSeat() TUTTI_RELEASE(seat_);
  void FreeSeat() TUTTI_RELEASE(seat_);
  // Takes the driver's seat, from the engine thread if that has it.
  void ClaimDriver() TUTTI_ACQUIRE(seat_);
  // Takes the driver's seat where it is free, or, unless `background`, where the engine thread has it: for a caller
  // that can also wait until another thread has driven its run to the end.
  bool TryToDrive(bool background) TUTTI_TRY_ACQUIRE(true, seat_);
  // Takes the seat, or sleeps until another thread has driven the run past `milestone`, for `left` or a slice at most.
  bool DriveOrSleep(Milestone& milestone, std::uint32_t run, bool background, absl::Duration left)
      TUTTI_TRY_ACQUIRE(true, seat_);
  void WakeDriver();
  // Deletes the calls that FreeLater was given. Not called by the driver.
  void FreeUnused();
  // Calls the function of the executor of this name, for which nobody needs the seat.
  void BeginThread() TUTTI_NO_THREAD_SAFETY_ANALYSIS { executor_->BeginThread(); }
  // The engine's own thread; `seen`: the thread's calls (Presence::thread_calls) that need no answer.
  void ThreadMain(std::uint32_t seen);

  const std::shared_ptr<Transport> transport_;
  const std::shared_ptr<Arena> arena_;
  const EngineOptions options_;
  const MakerProcess maker_;
  Presence& presence_;
  SubmissionQueue queue_;
  ChannelNumbers numbers_{kMaxChannels - 1};

  DriverSeat seat_;  // taken by the driver
  const std::unique_ptr<Executor> executor_ TUTTI_PT_GUARDED_BY(seat_);
  std::vector<Channel*> channels_ TUTTI_GUARDED_BY(seat_);  // the open channels
  int failing_ TUTTI_GUARDED_BY(seat_) = 0;                 // channels whose failure is not over
  const std::shared_ptr<std::vector<std::atomic<bool>>> ended_ =
      std::make_shared<std::vector<std::atomic<bool>>>(options_.presence.size());  // by rank of the world
  std::size_t losses_seen_ TUTTI_GUARDED_BY(seat_) = 0;  // how many losses of Transport::Check have been handled
  bool world_closed_ TUTTI_GUARDED_BY(seat_) = false;    // whether the channel with the number 0 is closed
  std::int64_t looked_around_ns_ TUTTI_GUARDED_BY(seat_) = 0;
  // Notes about groups that this rank is about to open.
  std::deque<Note> early_notes_ TUTTI_GUARDED_BY(seat_);
  std::int64_t last_check_ns_ TUTTI_GUARDED_BY(seat_) = 0;
  std::int64_t last_move_shown_ns_ TUTTI_GUARDED_BY(seat_) = 0;
  // The earliest deadline of the calls under way, as of the last CheckHealth.
  std::int64_t next_deadline_ns_ TUTTI_GUARDED_BY(seat_) = 0;
  Inquiries inquiries_ TUTTI_GUARDED_BY(seat_);
  Leavers leavers_ TUTTI_GUARDED_BY(seat_);
  MessageWait message_wait_ TUTTI_GUARDED_BY(seat_);
  std::uint32_t polls_ TUTTI_GUARDED_BY(seat_) = 0;

  // What peers that ask are told: who holds this rank up, as far as it knows.
  std::atomic<Rank> held_up_by_{-1};
  // A hint: whether runs were under way when the driver's seat was left last.
  std::atomic<bool> left_busy_{false};
  std::atomic<bool> driver_sleeps_{false};
  std::atomic<bool> thread_drives_{false};
  std::atomic<int> claims_{0};        // callers that want to drive instead of the engine thread
  std::atomic<int> sleepers_{0};      // callers that are, or are about to be, asleep in Wait
  std::atomic<int> eager_waits_{0};   // see BeginEagerWait
  std::atomic<bool> aborted_{false};  // Abort was called for a channel
  std::atomic<bool> thread_sleeps_{false};
  std::atomic<bool> stop_{false};
  std::atomic<bool> has_unused_{false};  // a hint: whether unused_ has calls
  Mutex unused_mutex_;
  std::vector<Call*> unused_ TUTTI_GUARDED_BY(unused_mutex_);  // see FreeLater
  ThreadTime thread_time_;                                     // of thread_
  std::thread thread_;
  CallbackThreads callbacks_;
};

}  // namespace tutti

#endif  // TUTTI_ENGINE_ENGINE_H_
