// How a channel fails: its peers are told, and the memory of its calls is got back from them.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/told_by.h"
#include "engine/channel.h"
#include "engine/engine.h"
#include "memory/arena.h"

namespace tutti {
namespace {

// The time that peers have to leave the memory of calls that fail, before the memory is taken out of their reach.
constexpr absl::Duration kGrace = absl::Milliseconds(40);
// Where the memory cannot be taken out of their reach, peers have the time that a step may take on a very busy machine.
constexpr absl::Duration kLongGrace = absl::Seconds(30);
// A peer that lives takes messages, or throws them away, in this time: its engine thread looks for them five times.
// Messages to other nodes cross the network all the same, so the time begins anew with each message that ends, and when
// bytes of any group move, in either direction: the answer of a peer may come behind a long message.
constexpr absl::Duration kMessageGrace = absl::Seconds(1);
// Later than kMessageGrace: when nothing has moved for this time, the transport is shut down.
constexpr absl::Duration kShutdownGrace = absl::Seconds(2);
// The message of a Send or Recv is not cut into segments, so it cannot stop half-way: a peer has the time that its
// message takes at this speed. A peer on a slower link is given up, unless the transport tells that bytes move.
constexpr double kSlowestBytesPerSecond = 50e6;
// The most notes that are kept for groups which this rank may be about to open.
constexpr std::size_t kMaxEarlyNotes = 256;

// The time that the longest message of a Send or Recv of `channel` takes on the slowest link.
absl::Duration LongestPassage(absl::Span<Run* const> runs, const Channel& channel) {
  std::int64_t longest = 0;
  for (const Run* const run : runs) {
    if (&run->channel != &channel || !run->program.point_to_point) continue;
    longest = std::max({longest, run->program.plan.in_bytes, run->program.plan.out_bytes});
  }
  return absl::Seconds(static_cast<double>(longest) / kSlowestBytesPerSecond);
}

}  // namespace

void Engine::Fail(Channel& channel, const absl::Status& cause) {
  channel.sticky().Set(cause);
  Channel::Failure& failure = channel.failure;
  if (failure.begun) return;
  failure.begun = true;
  failure.told_ns = MonotonicNanos();
  ++failing_;
  channel.TellFailure(channel.sticky().Get());
  transport_->Discard(channel.number());
  executor_->Abandon(channel, channel.sticky().Get());
}

void Engine::SetOnDevice(Channel& channel, std::unique_ptr<ChannelOnDevice> on_device) {
  ClaimDriver();
  channel.SetOnDevice(std::move(on_device));
  if (channel.failure.begun) executor_->Abandon(channel, channel.sticky().Get());
  LeaveSeat();
}

void Engine::AddOnDevice(Channel& channel, std::vector<Rank> group, std::unique_ptr<NativeTransport> native) {
  ClaimDriver();
  channel.on_device()->Add(std::move(group), std::move(native));
  if (channel.failure.begun) executor_->Abandon(channel, channel.sticky().Get());
  LeaveSeat();
}

void Engine::FailWhatWasGivenUp() {
  if (aborted_.load(std::memory_order_seq_cst)) {
    aborted_.store(false, std::memory_order_seq_cst);
    for (Channel* const channel : channels_) {
      if (!channel->sticky().ok()) Fail(*channel, channel->sticky().Get());
    }
  }
  for (Run* const run : executor_->active()) FailIfGivenUp(run->channel);
}

void Engine::FailIfGivenUp(Channel& channel) {
  if (!channel.failure.begun && channel.peer_failed()) Fail(channel, channel.FailureOfPeer());
}

void Engine::FailWhatPeersGaveUp() {
  for (Channel* const channel : channels_) FailIfGivenUp(*channel);
}

void Engine::TakeInNews() {
  const absl::Span<const Loss> all = transport_->Check();
  const std::vector<Loss> losses(all.begin() + static_cast<std::ptrdiff_t>(losses_seen_), all.end());
  losses_seen_ = all.size();
  if (!losses.empty()) SeeWhoHasEnded();
  for (const Loss& loss : losses) {
    numbers_.RememberLost(loss.peer);
    for (Channel* const channel : channels_) {
      if (channel->RankOf(loss.peer).has_value()) Fail(*channel, loss.cause);
    }
  }
  while (const std::optional<Note> note = transport_->TakeNote()) TakeInNote(*note);
  FailWhatPeersGaveUp();
}

void Engine::SeeWhoHasEnded() {
  std::vector<Rank> lost;  // HasEnded may find further losses, which move those that Check shows
  for (const Loss& loss : transport_->Check()) lost.push_back(loss.peer);
  for (const Rank peer : lost) {
    std::atomic<bool>& ended = (*ended_)[static_cast<std::size_t>(peer)];
    if (!ended.load() && transport_->HasEnded(peer)) ended.store(true);
  }
}

void Engine::TakeInNote(const Note& note) {
  for (Channel* const channel : channels_) {
    if (channel->number() != note.group) continue;
    const std::optional<Rank> from = channel->RankOf(note.from);
    if (!from.has_value()) return;
    if (note.cause.ok()) {
      channel->MarkLeft(*from);
    } else {
      channel->MarkGaveUp(*from);
      Fail(*channel, ToldBy(note.from, note.cause));
    }
    return;
  }
  // A rank that has given the channel up may yet tell that it has left.
  if (note.cause.ok()) numbers_.RememberLeft(note.group, note.from);
  const bool of_the_past = numbers_.IsClosed(note.group) || (note.group == 0 && world_closed_);
  if (of_the_past) return;
  early_notes_.push_back(note);
  if (early_notes_.size() <= kMaxEarlyNotes) return;
  // A cause ends its group at once. Without the note that a rank has left, calls that wait for this rank end by their
  // deadline, or when the rank leaves the world.
  const auto leaves =
      std::find_if(early_notes_.begin(), early_notes_.end(), [](const Note& n) { return n.cause.ok(); });
  early_notes_.erase(leaves == early_notes_.end() ? early_notes_.begin() : leaves);
}

bool Engine::EndFailures() {
  const std::int64_t now_ns = MonotonicNanos();
  bool ended = false;
  for (Channel* const channel : channels_) {
    Channel::Failure& failure = channel->failure;
    if (!failure.begun || failure.over) continue;
    const bool memory = MemoryIsBack(*channel, now_ns);
    const bool messages = MessagesAreBack(*channel, now_ns);
    if (!memory || !messages || !DeviceHasLetGo(*channel, now_ns)) continue;
    failure.over = true;
    --failing_;
    executor_->End(*channel, channel->sticky().Get());
    ended = true;
  }
  return ended;
}

bool Engine::DeviceHasLetGo(const Channel& channel, std::int64_t now_ns) {
  return executor_->HasLetGo(channel) || now_ns >= NanosAfter(channel.failure.told_ns, kLongGrace);
}

bool Engine::MemoryIsBack(Channel& channel, std::int64_t now_ns) {
  Channel::Failure& failure = channel.failure;
  if (failure.secluded || !channel.PeersTouchMemory()) return true;
  if (now_ns < NanosAfter(failure.told_ns, kGrace)) return false;
  if (!std::exchange(failure.took_outputs, true)) failure.secluded = SecludeOutputs(channel);
  // Without seclusion (the peers are threads of this process, or there is no memory for a copy) peers may still write
  // to the outputs, and all that helps is to wait longer than a step takes.
  return failure.secluded || now_ns >= NanosAfter(failure.told_ns, kLongGrace);
}

bool Engine::SecludeOutputs(const Channel& channel) {
  bool all_secluded = true;
  for (const Run* const run : executor_->active()) {
    if (&run->channel != &channel) continue;
    const absl::Span<std::byte> output = run->output_lent_to_peers();
    if (output.empty()) continue;
    const absl::Span<std::byte> pages = arena_->OwnPagesOf(output.data(), static_cast<std::int64_t>(output.size()));
    // The ends of the output, on pages that hold something else too, stay in the peers' reach: nothing else may be
    // there once the caller has given the output back.
    if (pages.size() < output.size()) arena_->Withdraw(output);
    if (pages.empty()) continue;
    const bool secluded = transport_->Seclude(pages.data(), static_cast<std::int64_t>(pages.size())).ok();
    if (secluded) arena_->Withdraw(pages);
    all_secluded &= secluded;
  }
  return all_secluded;
}

bool Engine::MessagesAreBack(Channel& channel, std::int64_t now_ns) {
  const std::vector<Rank> peers = executor_->MessagePeers(channel);
  if (peers.empty()) return true;
  Channel::Failure& failure = channel.failure;
  // Messages of other groups may be before those of this one.
  std::int64_t bytes_moved = 0;
  for (const Rank rank : peers) bytes_moved += transport_->BytesMovedWith(channel.peer(rank).world_rank);
  const bool fewer = peers.size() < failure.messages_left;
  if (fewer || bytes_moved > failure.bytes_moved) failure.moved_ns = now_ns;
  if (fewer) failure.messages_left = peers.size();
  failure.bytes_moved = bytes_moved;
  const absl::Duration passage = LongestPassage(executor_->active(), channel);
  if (now_ns >= NanosAfter(failure.moved_ns, kShutdownGrace + passage)) {
    transport_->Shutdown(channel.sticky().Get());
    for (Channel* const other : channels_) Fail(*other, channel.sticky().Get());
  } else if (now_ns >= NanosAfter(failure.moved_ns, kMessageGrace + passage) &&
             !std::exchange(failure.disconnected, true)) {
    for (const Rank rank : peers) {
      const Rank peer = channel.peer(rank).world_rank;
      if (peer == options_.rank) continue;
      transport_->Disconnect(
          peer, absl::UnavailableError(absl::StrCat("rank ", peer, " has taken no messages of rank ", options_.rank,
                                                    " for ", absl::FormatDuration(kMessageGrace + passage),
                                                    ", not even to throw them away")));
    }
  }
  return false;
}

}  // namespace tutti
