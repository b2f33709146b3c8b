// Whether a thread that waits for messages, of other nodes or of its own, polls for them or sleeps.
#ifndef TUTTI_ENGINE_MESSAGE_WAIT_H_
#define TUTTI_ENGINE_MESSAGE_WAIT_H_

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

namespace tutti {

// Whether polls pay: while most of the last ones met their message in time. Where they do not, one is tried now and
// then, more seldom with each one in vain.
class PollHistory {
 public:
  // Called once as a wait begins; true when the wait is to have polls.
  bool BeginWait() {
    if (share_met_ >= kEnough) return true;
    if (waits_until_try_ > 0) --waits_until_try_;
    return waits_until_try_ == 0;
  }

  // Called as a wait that had polls ends: whether its message came in time, while the thread polled.
  void EndWait(bool met) {
    share_met_ += ((met ? 1.0F : 0.0F) - share_met_) / kMemory;
    waits_between_tries_ = met ? 1 : std::min(2 * waits_between_tries_, kMostBetweenTries);
    waits_until_try_ = waits_between_tries_;
  }

 private:
  static constexpr float kMemory = 8;     // about so many polled waits are remembered
  static constexpr float kEnough = 0.5F;  // the share of met messages from which on polls pay
  static constexpr int kMostBetweenTries = 1024;

  float share_met_ = 1;  // of the last polled waits
  int waits_between_tries_ = 1;
  int waits_until_try_ = 1;
};

// The shortest of the last kWaits waits or more, less than twice as many.
class ShortestWait {
 public:
  void Add(std::int64_t nanos) {
    lately_ = std::min(lately_, nanos);
    if (++waits_ < kWaits) return;
    waits_ = 0;
    before_ = std::exchange(lately_, kNever);
  }
  // 0 before there were so many waits.
  std::int64_t nanos() const { return std::min(before_, lately_); }

 private:
  static constexpr int kWaits = 8;
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

  int waits_ = 0;
  std::int64_t lately_ = kNever;
  std::int64_t before_ = 0;  // in the kWaits waits before
};

// How the waits for one thing have gone. Waits for the runs of one call resemble each other, but not those for other
// calls: a rank that meets its peers in a barrier, and exchanges messages with them afterwards, waits for as long as
// the slowest rank computes, and then for the way of a message.
struct WaitHistory {
  PollHistory at_once;      // polls with which a wait begins
  PollHistory after_alarm;  // polls after a sleep
  ShortestWait unpolled;    // of the waits that did not begin with polls
};

// A poll costs less than to go to sleep and to be woken, where a message comes soon, and the thread gives its core away
// between two polls (sched_yield), so that a peer or the kernel, for which the thread waits, may use this core. But
// where other programs keep the cores busy, a thread that has given its core away gets it back late, while one that
// sleeps is woken at once. So a thread polls only while polls meet their messages in time.
//
// On a link with a long way, waits are long, and often equally long. A thread that sleeps in such a wait sets an alarm
// for a time shortly before the message is due, and polls from then on: the processor, which may have gone to sleep,
// too, is awake when the message comes. Where a thread sleeps and its waits are shorter, no alarm is set, and nothing
// is concluded from their length: polls would make these waits longer where the peer needs this core.
class MessageWait {
 public:
  // How long a wait polls. To sleep until a message comes, which is to prepare all sockets for it, to be woken, on
  // another core than the waker's, and to look through the sockets again, takes some 50 µs; where four hosts share two
  // cores, a message that is under way takes several times as long. Not measured anew: two threads that share a core
  // wake each other in 2 µs, and one that waits for a busy core runs milliseconds later.
  static constexpr std::int64_t kPollNanos = 200'000;
  // How long before the message is due the alarm rings: the kernel may be 50 µs late, and so may the processor.
  static constexpr std::int64_t kAlarmBeforeNanos = 120'000;
  // A wait gets an alarm where a message is due so late that the alarm rings after 200 µs of sleep, and so early that
  // the 50 µs of a wake-up are at least 2 % of the wait.
  static constexpr std::int64_t kLeastDueNanos = kPollNanos + kAlarmBeforeNanos;
  static constexpr std::int64_t kMostDueNanos = 2'500'000;

  // Called after a poll that found nothing, with the time; false when the thread had better sleep, until alarm_ns().
  // `history` is that of what the thread waits for, the same in all calls of one wait; it is used until the wait ends.
  bool PollsOn(std::int64_t now_ns, WaitHistory& history) {
    if (!is_waiting()) Begin(now_ns, history);
    return polls_at_once_ ? now_ns - began_ns_ < kPollNanos : AlarmHasRung(now_ns);
  }

  // When a thread that sleeps is to poll though nothing has woken it; the largest integer: never. A time that has just
  // passed means at once.
  std::int64_t alarm_ns(std::int64_t now_ns) const {
    return now_ns < alarm_ns_ || AlarmHasRung(now_ns) ? alarm_ns_ : kNever;
  }

  // Whether a wait has begun and not ended.
  bool is_waiting() const { return began_ns_ != kNotWaiting; }

  // Called after a poll that found something, with the time: the wait, if there was one, has ended.
  void Ended(std::int64_t now_ns) {
    if (!is_waiting()) return;
    const std::int64_t waited = now_ns - std::exchange(began_ns_, kNotWaiting);
    if (polls_at_once_) return history_->at_once.EndWait(waited < kPollNanos);
    // A message that came before the alarm has cost no poll.
    if (now_ns >= alarm_ns_) history_->after_alarm.EndWait(AlarmHasRung(now_ns));
    alarm_ns_ = kNever;
    history_->unpolled.Add(waited);
  }

  // Called when the thread stops to wait although nothing has come, with the time. Polls that were over by then were in
  // vain; how long the wait would have lasted is not known.
  void GivenUp(std::int64_t now_ns) {
    if (!is_waiting()) return;
    const std::int64_t waited = now_ns - std::exchange(began_ns_, kNotWaiting);
    if (polls_at_once_ && waited >= kPollNanos) history_->at_once.EndWait(false);
    if (now_ns >= alarm_ns_ && !AlarmHasRung(now_ns)) history_->after_alarm.EndWait(false);
    alarm_ns_ = kNever;
  }

 private:
  static constexpr std::int64_t kNotWaiting = -1;
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

  void Begin(std::int64_t now_ns, WaitHistory& history) {
    began_ns_ = now_ns;
    history_ = &history;
    alarm_ns_ = kNever;
    polls_at_once_ = history.at_once.BeginWait();
    const std::int64_t due = history.unpolled.nanos();
    if (polls_at_once_ || due < kLeastDueNanos || due > kMostDueNanos || !history.after_alarm.BeginWait()) return;
    alarm_ns_ = now_ns + due - kAlarmBeforeNanos;
  }

  // Whether the alarm has rung, and the polls that follow it last.
  bool AlarmHasRung(std::int64_t now_ns) const { return now_ns >= alarm_ns_ && now_ns - alarm_ns_ < kPollNanos; }

  std::int64_t began_ns_ = kNotWaiting;
  WaitHistory* history_ = nullptr;  // of this wait
  bool polls_at_once_ = false;      // in this wait
  std::int64_t alarm_ns_ = kNever;  // in this wait
};

}  // namespace tutti

#endif  // TUTTI_ENGINE_MESSAGE_WAIT_H_
