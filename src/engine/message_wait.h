// Whether a thread that waits for messages, of other nodes or of its own, polls for them or sleeps.
#ifndef TUTTI_ENGINE_MESSAGE_WAIT_H_
#define TUTTI_ENGINE_MESSAGE_WAIT_H_

#include <algorithm>
#include <cstdint>

namespace tutti {

// A poll costs less than to go to sleep and to be woken, where a message comes soon, and the thread gives its core away
// between two polls (sched_yield), so that a peer or the kernel, for which the thread waits, may use this core. But
// where other programs keep the cores busy, a thread that has given its core away gets it back late, while one that
// sleeps is woken at once. So a thread polls only while most of its last polls met their message in time. A thread that
// sleeps tries a poll now and then, more seldom with each one in vain: how long a wait lasts that was slept through
// tells nothing, because polls would have made it longer where the peer needs this core.
class MessageWait {
 public:
  // How long a wait polls. To sleep until a message comes, which is to prepare all sockets for it, to be woken, on
  // another core than the waker's, and to look through the sockets again, takes some 50 µs; where four hosts share two
  // cores, a message that is under way takes several times as long. Not measured anew: two threads that share a core
  // wake each other in 2 µs, and one that waits for a busy core runs milliseconds later.
  static constexpr std::int64_t kPollNanos = 200'000;

  // Called after a poll that found nothing, with the time; false when the thread had better sleep.
  bool PollsOn(std::int64_t now_ns) {
    if (!is_waiting()) {
      began_ns_ = now_ns;
      polls_ = share_met_ >= kEnough || --waits_until_try_ <= 0;
    }
    return polls_ && now_ns - began_ns_ < kPollNanos;
  }

  // Whether a wait has begun and not ended.
  bool is_waiting() const { return began_ns_ != kNotWaiting; }

  // Called after a poll that found something, with the time: the wait, if there was one, has ended.
  void Ended(std::int64_t now_ns) {
    const std::int64_t began_ns = began_ns_;
    began_ns_ = kNotWaiting;
    if (began_ns == kNotWaiting || !polls_) return;
    const bool met = now_ns - began_ns < kPollNanos;
    share_met_ += ((met ? 1.0F : 0.0F) - share_met_) / kMemory;
    waits_between_tries_ = met ? 1 : std::min(2 * waits_between_tries_, kMostBetweenTries);
    waits_until_try_ = waits_between_tries_;
  }

 private:
  static constexpr std::int64_t kNotWaiting = -1;
  static constexpr float kMemory = 8;     // about so many polled waits are remembered
  static constexpr float kEnough = 0.5F;  // the share of met messages from which on polls pay
  static constexpr int kMostBetweenTries = 1024;

  std::int64_t began_ns_ = kNotWaiting;
  bool polls_ = false;   // in this wait
  float share_met_ = 1;  // of the last polled waits
  int waits_between_tries_ = 1;
  int waits_until_try_ = 1;
};

}  // namespace tutti

#endif  // TUTTI_ENGINE_MESSAGE_WAIT_H_
