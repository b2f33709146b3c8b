// The numbers that a rank gives its channels, and when a number may be given again.
#ifndef TUTTI_ENGINE_CHANNEL_NUMBERS_H_
#define TUTTI_ENGINE_CHANNEL_NUMBERS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "base/mutex.h"
#include "engine/lent_memory.h"
#include "tutti/dtype.h"
#include "tutti/transport.h"

namespace tutti {

// The channels that a rank may have at once, the world's included.
inline constexpr std::uint32_t kMaxChannels = 1 << 19;

// A number is a part of the tags of messages, so two channels of a rank may have one number only if no message of the
// first can meet a receive of the second. After a channel was closed here, its peers may still send on it until they
// have closed it too, and what they have sent may still be on its way. So a number is given again when all peers have
// closed the channel, and several thousand channels have been closed since. Thread-safe.
class ChannelNumbers {
 public:
  // Gives the numbers 1 to `most`, each again only when `least_free` others have been closed since. 0 is the world's
  // number.
  explicit ChannelNumbers(std::uint32_t most, std::size_t least_free = Transport::kMaxDiscarded)
      : most_(most), least_free_(least_free) {}

  // Gives a number; nullopt when all are in use.
  std::optional<std::uint32_t> Take();
  // Takes back `number`, whose channel has been closed here or was never opened. `borrowers` are the channel's peers
  // that map memory (null: none); `away` are the other ranks of the world that may still send on the channel.
  void Close(std::uint32_t number, std::shared_ptr<const Borrowers> borrowers, std::vector<Rank> away);
  // Whether a closed channel has this number.
  bool IsClosed(std::uint32_t number);
  // Remembers that `rank`, whose memory is not mapped, has left the closed channel `number`: it sends nothing more
  // there.
  void RememberLeft(std::uint32_t number, Rank rank);
  // Remembers that `rank`, dead or given up, sends nothing more on any channel.
  void RememberLost(Rank rank);

 private:
  struct Closed {
    std::uint32_t number = 0;
    std::shared_ptr<const Borrowers> borrowers;
    std::vector<Rank> away;

    bool AllHaveLeft() const;
  };

  // The channel that was closed last with this number; null: none.
  Closed* Find(std::uint32_t number) TUTTI_REQUIRES(mutex_);

  const std::uint32_t most_;
  const std::size_t least_free_;
  Mutex mutex_;
  std::uint32_t next_ TUTTI_GUARDED_BY(mutex_) = 1;
  std::deque<Closed> closed_ TUTTI_GUARDED_BY(mutex_);
};

}  // namespace tutti

#endif  // TUTTI_ENGINE_CHANNEL_NUMBERS_H_
