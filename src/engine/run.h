// The memory and the state that an executor, the channel and the engine keep of a call while they carry it out.
#ifndef TUTTI_ENGINE_RUN_H_
#define TUTTI_ENGINE_RUN_H_

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/program.h"
#include "tutti/call_options.h"
#include "tutti/native_transport.h"

struct CUstream_st;  // NOLINT(readability-identifier-naming): CUDA's own handle of a stream

namespace tutti {

class Call;
class Channel;
class Run;

// A step of a peer that a run cannot go on without.
struct Blocker {
  static constexpr StepId kNoStep = std::numeric_limits<StepId>::max();

  Rank peer = 0;  // rank in the run's channel
  absl::string_view what;
  StepId step = kNoStep;
  bool is_ahead = false;  // the run does not wait for the step now, but will

  // For an error: "step 3 (recv)".
  std::string Place() const;
};

// The place of a run in the order of its channel's calls. Written by Channel alone.
struct Ticket {
  int lane = -1;  // -1: none, as for Send and Recv
  std::uint64_t lane_run = 0;
  std::uint64_t sequence = 0;                // number of the call in its channel, or among its Sends and Recvs
  CallIdentity identity;                     // what the peers of a collective must have called in the same place
  std::uint8_t identity_hash = 0;            // see HashOf
  std::uint32_t signals = 0;                 // signals that this rank has made in the run
  bool any_private_buffers = false;          // whether this rank, or a peer as far as is known, has private buffers
  bool has_gone_over = false;                // see Channel::GoOver
  std::vector<MessageCounts> first_message;  // by peer: the numbers of the run's first messages
  // The numbers of Run::stream_messages among those of this rank to (or from) the same peer, from 1.
  std::vector<std::uint64_t> message_numbers;
  std::uint64_t look = 1;                  // grows whenever what is known of the peers' announcements is out of date
  std::vector<std::uint64_t> known_since;  // by peer: the `look` in which its announcement was read last
  // The lane and its run in which peers may have read this call's own scratch last; -1: none.
  int lent_lane = -1;
  std::uint64_t lent_run = 0;

  bool Knows(Rank peer) const { return known_since[static_cast<std::size_t>(peer)] == look; }
};

// A message that a rank sends or receives on a stream, in a call whose peers do not know its plan: a Send, a Recv,
// several of them, or an all_to_all_v.
struct StreamMessage {
  Rank peer = 0;
  bool sends = false;
  std::int64_t bytes = 0;
};

// What the engine watches while a run is under way. Written by Engine alone.
struct Watch {
  static constexpr std::uint32_t kNotStuck = 0xffffffff;

  // Times are CLOCK_MONOTONIC; 0: not set yet.
  std::int64_t first_seen_ns = 0;  // when the driver checked the run's deadline for the first time
  std::int64_t deadline_ns = 0;
  // Run::steps_left when the run was last seen to wait for a rank that has left.
  std::uint32_t steps_left_when_stuck = kNotStuck;
};

// Names the random numbers of a message that a codec rounds at random: those of every rank, step and draw differ.
std::uint64_t DrawOf(const Run& run, StepId step);

// Made by an executor for one call, and used by the engine's driver while a run of the call is under way.
class Run {
 public:
  Run(Call& its_call, Channel& its_channel, const Program& its_program);
  virtual ~Run() = default;
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  // ---- the thread that submits, while no run is under way ----
  // Names the memory of the next runs, and allocates what they need beside it. ResourceExhausted when there is no room.
  virtual absl::Status SetBuffers(const void* in, void* out, void* state) = 0;
  // Names the sends and receives of the next run, for a program that takes them: see StreamRun.
  virtual absl::Status SetMessages(absl::Span<const NativeCall> calls);
  // Bytes that SetBuffers has allocated and the run still holds.
  virtual std::int64_t held_bytes() const = 0;
  // Told just before a run of a program with a stream_order is submitted. After an error the run is not made.
  virtual absl::Status OnSubmit(const CallOptions& /*options*/) { return absl::OkStatus(); }
  // Whether the run that was told of last becomes part of a CUDA graph, and whether any run of the call has.
  virtual bool captured() const { return false; }
  virtual bool in_graph() const { return false; }

  // ---- any thread ----
  // Lets what is enqueued on `stream` from now on wait for the run that was enqueued last. Waits for nothing itself.
  virtual absl::Status WaitOnStream(CUstream_st* stream) = 0;

  // ---- the driver ----
  // Whether the steps of the run have begun.
  virtual bool started() const = 0;
  // Whether all steps of the run are on a stream, whose end the run awaits.
  virtual bool enqueued() const { return false; }
  // The number of steps that are not complete; falls whenever the run moves.
  virtual std::uint32_t steps_left() const = 0;
  // The first that `matches` of what the run waits for now, and then of the signals not yet made for which it will wait
  // (Blocker::is_ahead); nullopt when there is none. Signals come before messages, and receives, which name the rank
  // that has not sent, before sends. Allocates nothing.
  virtual std::optional<Blocker> FindBlocker(absl::FunctionRef<bool(const Blocker&)> matches) const = 0;
  // What the run waits for now; nullopt when it waits for nothing.
  std::optional<Blocker> FirstBlocker() const {
    return FindBlocker([](const Blocker& blocker) { return !blocker.is_ahead; });
  }
  // For an error: "call 17, recv:message recv f32 count=4 from=any tag=5".
  std::string Text() const;
  // Text() without what is known only once the run has its place among the calls. Any thread.
  std::string What() const;
  // The messages of the run, those without bytes included, where they are no matter of all ranks' plans; empty: none,
  // or the run is not on a stream. Messages between two ranks match in this order.
  virtual absl::Span<const StreamMessage> stream_messages() const { return {}; }
  // The caller's memory that peers write during the run; empty: none.
  virtual absl::Span<std::byte> output_lent_to_peers() const = 0;

  Call& call;
  Channel& channel;  // for the driver alone, while the run is under way: gone once the communicator is destroyed
  const Program& program;
  // The program whose steps are taken: `program`, or the one for private buffers.
  const Program* current;
  // The caller's buffers lie where peers should map them and cannot, and are not staged whole for that.
  bool private_buffers = false;
  // Addresses of the spaces of this rank and, once a peer's announcement has been read, of that peer: see BaseOf.
  std::vector<std::byte*> bases;
  // By peer: the addresses of the peer's buffers in `bases` are those of its process, which cannot be used here. Empty
  // unless the program for private buffers reads processes.
  std::vector<bool> in_process;
  // Not OK: the run has been refused. The run then ends with this error on this rank and with an error on all other
  // ranks, and the group goes on, unless ranks of other nodes wait for messages of the run.
  absl::Status refusal;
  Ticket ticket;
  Watch watch;
};

}  // namespace tutti

#endif  // TUTTI_ENGINE_RUN_H_
