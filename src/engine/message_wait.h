// Whether a thread that waits for messages of other nodes polls for them or sleeps.
#ifndef TUTTI_ENGINE_MESSAGE_WAIT_H_
#define TUTTI_ENGINE_MESSAGE_WAIT_H_

#include <cstdint>

namespace tutti {

// To poll for as long as going to sleep and waking up take, and then to sleep, costs at most twice what the better choice would have cost,
// but on a machine whose cores are busy those polls keep others from the very work for which this thread waits. So a
// thread polls only while most of its last waits were so short that the polls met the message. A wait that was slept
// through counts as well: a short one is one after which polls would have met the message.
class MessageWait {
 public:
  // `wake_up_ns`: what a sleeping thread takes to run again, once it is woken.
  explicit MessageWait(std::int64_t wake_up_ns)
      : wake_up_ns_(wake_up_ns), sleep_ns_(kSleepInWakeUps * wake_up_ns) {}

  // Called after a poll that found nothing, with the time; false when the thread had better sleep.
  bool PollsOn(std::int64_t now_ns) {
    if (began_ns_ == kNotWaiting) began_ns_ = now_ns;
    if (short_share_ < kEnough) {
      slept_ = true;
      return false;
    }
    const bool polls = now_ns - began_ns_ < sleep_ns_;
    slept_ |= !polls;
    return polls;
  }

  // Called after a poll that found something, with the time: the wait, if there was one, has ended.
  void Ended(std::int64_t now_ns) {
    if (began_ns_ == kNotWaiting) return;
    const std::int64_t lasted_ns = now_ns - began_ns_ - (slept_ ? wake_up_ns_ : 0);
    began_ns_ = kNotWaiting;
    slept_ = false;
    short_share_ += ((lasted_ns < sleep_ns_ ? 1.0F : 0.0F) - short_share_) / kMemory;
  }

 private:
  static constexpr std::int64_t kNotWaiting = -1;
  // What it costs to sleep until a message comes, in wake-ups of a thread: to prepare all sockets for it, to be woken, and
  // to look through the sockets again.
  static constexpr std::int64_t kSleepInWakeUps = 4;
  static constexpr float kMemory = 8;   // about so many waits are remembered
  static constexpr float kEnough = 0.5F;  // the share of short waits from which on polls pay

  const std::int64_t wake_up_ns_;
  const std::int64_t sleep_ns_;  // what a sleep costs
  std::int64_t began_ns_ = kNotWaiting;
  bool slept_ = false;
  float short_share_ = 1;  // of the last waits
};

}  // namespace tutti

#endif  // TUTTI_ENGINE_MESSAGE_WAIT_H_
