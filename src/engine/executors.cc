#include "engine/executors.h"

#include <algorithm>
#include <iterator>

namespace tutti {

void Executors::Add(Run& run) {
  waiting_.push_back(&run);
  PassOn();
  ListActive();
}

bool Executors::PassOn() {
  std::vector<const Channel*> held;  // channels of which a run goes on waiting
  const auto left = std::remove_if(waiting_.begin(), waiting_.end(), [&](Run* run) {
    Executor& its_own = Of(run->program);
    const bool on_host = &its_own == on_host_.get();
    const Executor& other = on_host ? *on_stream_ : *on_host_;
    // A message of the host has no place in the order of calls, and its receiver may wait for nothing else.
    const bool has_place = !(on_host && run->program.point_to_point);
    const bool waits = has_place && (std::find(held.begin(), held.end(), &run->channel) != held.end() ||
                                     other.HasPending(run->channel));
    if (waits) {
      held.push_back(&run->channel);
    } else {
      its_own.Add(*run);
    }
    return !waits;
  });
  const bool moved = left != waiting_.end();
  waiting_.erase(left, waiting_.end());
  return moved;
}

Executor::Polled Executors::Poll() {
  Polled polled = PassOn() ? Polled::kMoved : Polled::kNothing;
  for (Executor* const one : {on_host_.get(), on_stream_.get()}) {
    const Polled its = one->Poll();
    if (its == Polled::kNothing) continue;
    polled = its;
    failed_ = one;
    if (its == Polled::kFailed) break;
  }
  if (polled != Polled::kNothing) ListActive();
  return polled;
}

std::vector<Rank> Executors::MessagePeers(const Channel& channel) const {
  std::vector<Rank> peers = on_host_->MessagePeers(channel);
  const std::vector<Rank> on_stream = on_stream_->MessagePeers(channel);
  peers.insert(peers.end(), on_stream.begin(), on_stream.end());
  return peers;
}

void Executors::End(Channel& channel, const absl::Status& cause) {
  for (Run* const run : TakeRunsOf(channel, waiting_)) Of(run->program).Add(*run);
  on_host_->End(channel, cause);
  on_stream_->End(channel, cause);
  ListActive();
}

void Executors::ListActive() {
  const absl::Span<Run* const> on_host = on_host_->active();
  const absl::Span<Run* const> on_stream = on_stream_->active();
  active_.clear();
  std::merge(on_host.begin(), on_host.end(), on_stream.begin(), on_stream.end(), std::back_inserter(active_),
             [](const Run* a, const Run* b) { return a->ticket.sequence < b->ticket.sequence; });
}

}  // namespace tutti
