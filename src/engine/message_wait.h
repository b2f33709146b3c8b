// Whether a thread that waits for messages, of other nodes or of its own, polls for them or sleeps.
#ifndef TUTTI_ENGINE_MESSAGE_WAIT_H_
#define TUTTI_ENGINE_MESSAGE_WAIT_H_

#include <cstdint>
#include <limits>
#include <utility>

#include "engine/wait_history.h"

namespace tutti {

// A poll costs less than to go to sleep and to be woken, where a message comes soon, and the thread gives its core away
// between two polls (sched_yield), so that a peer or the kernel, for which the thread waits, may use this core. But
// where other programs keep the cores busy, a thread that has given its core away gets it back late, while one that
// sleeps is woken at once. So a wait polls only while polls meet their messages in time: those of this kind of waits.
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
  static constexpr std::int64_t kMinDueNanos = kPollNanos + kAlarmBeforeNanos;
  static constexpr std::int64_t kMaxDueNanos = 2'500'000;

  // Called after a poll that found nothing, with the time; false when the thread had better sleep, until alarm_ns().
  // `kind` says what the thread waits for (see WaitHistories); a wait is of the kind that its first poll names.
  bool PollsOn(std::int64_t now_ns, const void* kind) {
    if (!is_waiting()) Begin(now_ns, kind);
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
    if (polls_at_once_) return histories_.EndPolled(waited < kPollNanos);
    // A message that came before the alarm has cost no poll.
    if (now_ns >= alarm_ns_) history_->after_alarm.EndWait(AlarmHasRung(now_ns));
    alarm_ns_ = kNever;
    histories_.EndUnpolled(waited);
  }

 private:
  static constexpr std::int64_t kNotWaiting = -1;
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

  void Begin(std::int64_t now_ns, const void* kind) {
    began_ns_ = now_ns;
    alarm_ns_ = kNever;
    history_ = &histories_.Begin(kind);
    polls_at_once_ = history_->at_once.BeginWait();
    const std::int64_t due = history_->unpolled.nanos();
    if (polls_at_once_ || due < kMinDueNanos || due > kMaxDueNanos || !history_->after_alarm.BeginWait()) return;
    alarm_ns_ = now_ns + due - kAlarmBeforeNanos;
  }

  // Whether the alarm has rung, and the polls that follow it last.
  bool AlarmHasRung(std::int64_t now_ns) const { return now_ns >= alarm_ns_ && now_ns - alarm_ns_ < kPollNanos; }

  std::int64_t began_ns_ = kNotWaiting;
  WaitHistory* history_ = nullptr;  // the one by which this wait goes
  bool polls_at_once_ = false;      // in this wait
  std::int64_t alarm_ns_ = kNever;  // in this wait
  WaitHistories histories_;
};

}  // namespace tutti

#endif  // TUTTI_ENGINE_MESSAGE_WAIT_H_
