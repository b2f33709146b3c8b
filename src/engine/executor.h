// The interface of executors: they carry out the calls of an engine, step by step. An executor never waits; the engine
// does.
#ifndef TUTTI_ENGINE_EXECUTOR_H_
#define TUTTI_ENGINE_EXECUTOR_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/run.h"

namespace tutti {

// But for BeginThread, MakeRunnable, NewRun and the counters, all functions are called by the engine's driver only.
class Executor {
 public:
  virtual ~Executor() = default;

  // Called once by the engine's own thread, when it begins.
  virtual void BeginThread() {}

  // OK when what `program` needs is there, such as the kernels of a GPU; or Unimplemented that names a step which this
  // executor cannot carry out. Any thread.
  virtual absl::Status MakeRunnable(const Program& program) const = 0;
  // Makes the Run that carries out `call` of `program`, which it serves, on `channel`. `scratch`: memory for the
  // program's scratch that the caller lends; null: none. Any thread.
  virtual std::unique_ptr<Run> NewRun(Call& call, Channel& channel, const Program& program, void* scratch) = 0;

  // Queues a run, which starts when its lane is free, in the order of the calls.
  virtual void Add(Run& run) = 0;
  // Whether a run of `channel` waits for its place in the order of the calls.
  virtual bool HasPending(const Channel& channel) const = 0;
  // The short way of a short run (Program::is_short) while no other run is under way, and no channel fails: true when
  // the run has ended OK. False: the run is under way or queued, as after Add, and Poll goes on with it.
  virtual bool RunAtOnce(Run& run) = 0;
  // Advances everything as far as it goes now, but for the runs of channels that fail (Channel::failure). Once a peer
  // has given a channel up (Channel::peer_failed), no step of the channel touches a peer's memory or sends a message,
  // and no run of it ends: the channel is to fail here too. After kFailed the other runs have perhaps not been
  // advanced.
  enum class Polled : std::uint8_t { kNothing, kMoved, kFailed };
  virtual Polled Poll() = 0;
  // After kFailed: the error of a step or a message, and the channel that it ends.
  virtual const absl::Status& error() const = 0;
  virtual Channel& failed_channel() const = 0;
  // The ranks of the group with which messages of `channel`, which fails, are under way, once for each message; empty:
  // none are. A receive from any source that no message has met counts as a message with this rank.
  virtual std::vector<Rank> MessagePeers(const Channel& channel) const = 0;
  // Called once when `channel` begins to fail: gives up what only its peers could end.
  virtual void Abandon(Channel& channel, const absl::Status& cause) = 0;
  // Whether no device uses the memory of the runs of `channel` any more, which Abandon has given up.
  virtual bool HasLetGo(const Channel& channel) const = 0;
  // Ends every run of `channel` with `cause`. Called when no message of the channel is under way any more.
  virtual void End(Channel& channel, const absl::Status& cause) = 0;

  // Whether a run of `channel` has not ended.
  virtual bool Uses(const Channel& channel) const = 0;
  // Whether no run is under way or queued.
  virtual bool idle() const = 0;
  // Whether a run is under way or queued that somebody must drive now: all but those whose callers have promised to
  // drive them (CallOptions::caller_drives) and do not wait yet.
  virtual bool needs_driver() const = 0;
  virtual bool waits_for_messages() const = 0;
  // Whether runs wait for a GPU, which nothing but polls tells about.
  virtual bool polls_device() const { return false; }
  virtual bool waits_for_signals() const = 0;
  // Whether a run waits until a peer has completed another run: an earlier one, or one that was refused.
  virtual bool waits_for_completions() const = 0;
  // Whether every run is one of CallOptions::background.
  virtual bool all_in_background() const = 0;
  // The runs that have their place in the order of calls, oldest first.
  virtual absl::Span<Run* const> active() const = 0;

  // Bytes moved to and from other ranks, bytes copied into and out of staging, and calls that have ended OK. Counted by
  // the driver, read by any thread.
  virtual std::int64_t wire_bytes() const = 0;
  virtual std::int64_t staged_bytes() const = 0;
  virtual std::int64_t calls() const = 0;
};

}  // namespace tutti

#endif  // TUTTI_ENGINE_EXECUTOR_H_
