#include "engine/channel_numbers.h"

#include <algorithm>
#include <utility>

namespace tutti {

bool ChannelNumbers::Closed::AllHaveLeft() const {
  return away.empty() && (borrowers == nullptr || std::all_of(borrowers->begin(), borrowers->end(),
                                                              [](const Borrower& b) { return b.HasClosed(); }));
}

std::optional<std::uint32_t> ChannelNumbers::Take() {
  // The most closed channels that are searched for a free number while there are fresh numbers: a long search is not
  // worth its time then.
  constexpr std::ptrdiff_t kLooks = 16;
  const MutexLock lock(mutex_);
  const bool fresh = next_ <= most_;
  // The last `least_free_` closed numbers are not given again: messages that were sent with them may still arrive.
  const auto old = static_cast<std::ptrdiff_t>(closed_.size()) - static_cast<std::ptrdiff_t>(least_free_);
  if (old > 0) {
    const auto end = closed_.begin() + (fresh ? std::min(old, kLooks) : old);
    const auto found = std::find_if(closed_.begin(), end, [](const Closed& closed) { return closed.AllHaveLeft(); });
    if (found != end) {
      const std::uint32_t number = found->number;
      closed_.erase(found);
      return number;
    }
  }
  return fresh ? std::optional(next_++) : std::nullopt;
}

void ChannelNumbers::Close(std::uint32_t number, std::shared_ptr<const Borrowers> borrowers, std::vector<Rank> away) {
  if (number == 0) return;  // the world's number, never given again
  const MutexLock lock(mutex_);
  closed_.push_back({number, std::move(borrowers), std::move(away)});
}

ChannelNumbers::Closed* ChannelNumbers::Find(std::uint32_t number) {
  // The search starts at the channel that was closed last, which is the likeliest match.
  const auto found =
      std::find_if(closed_.rbegin(), closed_.rend(), [&](const Closed& c) { return c.number == number; });
  return found == closed_.rend() ? nullptr : &*found;
}

bool ChannelNumbers::IsClosed(std::uint32_t number) {
  const MutexLock lock(mutex_);
  return Find(number) != nullptr;
}

void ChannelNumbers::RememberLeft(std::uint32_t number, Rank rank) {
  const MutexLock lock(mutex_);
  if (Closed* const closed = Find(number)) std::erase(closed->away, rank);
}

void ChannelNumbers::RememberLost(Rank rank) {
  const MutexLock lock(mutex_);
  for (Closed& closed : closed_) std::erase(closed.away, rank);
}

}  // namespace tutti
