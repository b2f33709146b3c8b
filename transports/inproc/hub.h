// The hub, which the ranks of one process share: a port for each rank, and the messages under way between ranks.
#ifndef TUTTI_TRANSPORTS_INPROC_HUB_H_
#define TUTTI_TRANSPORTS_INPROC_HUB_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "memory/shared_region.h"
#include "tutti/transport.h"

namespace tutti {
namespace inproc {

class Port;

// A message, which belongs to its sender's port; the port outlives every reader, because the hub owns the port.
struct Message {
  // The receiver claims a message before it reads the sender's memory; a sender that shuts down, or has lost the
  // receiver, withdraws messages that nobody has claimed. The side that moves the state on from kPosted decides how the
  // message ends. A withdrawn message is never used again, because the receiver may still look at it.
  enum class State : std::uint8_t { kFree, kPosted, kClaimed, kWithdrawn };
  std::atomic<State> state = State::kFree;
  Rank source = 0;
  Rank target = 0;
  std::uint64_t tag = 0;
  const void* data = nullptr;
  std::int64_t bytes = 0;
  Completion* completion = nullptr;
  Port* sender = nullptr;

  bool Claim() {
    State expected = State::kPosted;
    return state.compare_exchange_strong(expected, State::kClaimed);
  }
  bool Withdraw() {
    State expected = State::kPosted;
    return state.compare_exchange_strong(expected, State::kWithdrawn);
  }
};

// News for one rank.
struct Event {
  enum class Kind : std::uint8_t {
    kArrived,   // `message` is there to be received
    kEnded,     // `message`, which the rank sent, has ended with `status`
    kLeft,      // `peer` says goodbye
    kAborted,   // `peer` aborts, with `status`
    kAsked,     // `peer` asks for whom this rank waits
    kAnswered,  // `peer` answers that question: it waits for `waits_for`
    kNoted,     // `peer` notes that `group` has failed with `status`, or, where that is OK, that `peer` has left it
  };
  Kind kind;
  Message* message = nullptr;
  absl::Status status = absl::OkStatus();
  Rank peer = 0;
  std::uint32_t group = 0;
  Rank waits_for = -1;
};

// The number of messages under way for which room is made at the start: up to this number, nothing that moves a message
// allocates.
inline constexpr std::size_t kRoom = 256;

// The port through which one rank hears from the others. Thread-safe but for the messages that the port stores.
class Port {
 public:
  explicit Port(Mapping region);

  const Mapping& region() const { return region_; }

  // Delivers a message to the rank. False when the rank has closed its port: the message stays with the caller.
  bool Deliver(Message* message);
  void ReportEnd(Message* message, absl::Status status);
  // Reports an event of a peer to the rank; a goodbye only when nothing that the peer sent is under way any more.
  void Report(const Event& event);
  // Moves all news into `events`, which must be empty; the port keeps the capacity that `events` had.
  void Take(std::vector<Event>* events);
  // Blocks until there is news, a Wake or `until`.
  void Sleep(absl::Time until);
  // Blocks until there is news.
  void AwaitNews();
  void Wake();
  // Closes the port: no message arrives any more.
  void Close();

  // The messages that this rank sends, used by its thread alone. Messages are pooled: in the long run nothing
  // allocates.
  Message* NewMessage();
  void Free(Message* message);
  std::deque<Message>& messages() { return messages_; }

 private:
  const Mapping region_;
  std::deque<Message> messages_;
  std::vector<Message*> free_messages_;

  Mutex mutex_;
  Condition news_;
  std::vector<Event> events_ TUTTI_GUARDED_BY(mutex_);
  bool woken_ TUTTI_GUARDED_BY(mutex_) = false;
  bool closed_ TUTTI_GUARDED_BY(mutex_) = false;
};

}  // namespace inproc

class InprocHub {
 public:
  InprocHub(int size, int ranks_per_node) : size_(size), ranks_per_node_(ranks_per_node > 0 ? ranks_per_node : size) {}

  int size() const { return size_; }
  bool share_node(Rank a, Rank b) const { return a / ranks_per_node_ == b / ranks_per_node_; }

  // The port of one more rank and the address under which its peers find it.
  struct Registration {
    inproc::Port* port;
    std::string address;
  };
  absl::StatusOr<Registration> Register(Mapping region);
  // NotFound when `address` is not from this hub.
  absl::StatusOr<inproc::Port*> Find(const std::string& address) const;
  // Reports `event` to every port but `own`.
  void ReportToOthers(const inproc::Port* own, const inproc::Event& event) const;

 private:
  std::string AddressOf(std::size_t index) const;

  const int size_;
  const int ranks_per_node_;
  mutable Mutex mutex_;
  std::vector<std::unique_ptr<inproc::Port>> ports_ TUTTI_GUARDED_BY(mutex_);
};

}  // namespace tutti

#endif  // TUTTI_TRANSPORTS_INPROC_HUB_H_
