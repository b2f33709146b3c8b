// How waits for messages have gone, by what was waited for.
#ifndef TUTTI_ENGINE_WAIT_HISTORY_H_
#define TUTTI_ENGINE_WAIT_HISTORY_H_

#include <algorithm>
#include <array>
#include <cstddef>
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
    waits_between_tries_ = met ? 1 : std::min(2 * waits_between_tries_, kMaxBetweenTries);
    waits_until_try_ = waits_between_tries_;
  }

 private:
  static constexpr float kMemory = 8;     // the last waits that had polls, about so many, count
  static constexpr float kEnough = 0.5F;  // the share of met messages from which on polls pay
  static constexpr int kMaxBetweenTries = 64;

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

// How waits have gone.
struct WaitHistory {
  PollHistory at_once;      // polls with which a wait begins
  PollHistory after_alarm;  // polls after a sleep
  ShortestWait unpolled;    // the waits that did not begin with polls
};

// The history of all waits of an engine, and those of the kinds of waits that came last, such as the waits for calls of
// one program. Waits of one kind resemble each other, but not those of another kind: a rank that meets its peers in a
// barrier, and exchanges messages with them afterwards, waits in one of the two for as long as the slowest rank
// computes, and in the other for the way of a message.
class WaitHistories {
 public:
  // Called as a wait of `kind` begins; null: of no kind. Returns the history by which this wait goes: that of all waits
  // as long as few waits of the kind have ended, so that calls of which each is of another kind learn from each other.
  // `kind` is compared with others, and not looked at: it may point to what is gone.
  WaitHistory& Begin(const void* kind) {
    kind_ = kind == nullptr ? nullptr : &Find(kind);
    return kind_ != nullptr && kind_->waits == kFew ? kind_->history : all_;
  }

  // Called as the wait that began last ends, if the wait began with polls: whether its message came while these lasted.
  void EndPolled(bool met) {
    all_.at_once.EndWait(met);
    if (kind_ == nullptr) return;
    kind_->history.at_once.EndWait(met);
    Count();
  }

  // Called as the wait that began last ends, if the wait did not begin with polls.
  void EndUnpolled(std::int64_t nanos) {
    all_.unpolled.Add(nanos);
    if (kind_ == nullptr) return;
    kind_->history.unpolled.Add(nanos);
    Count();
  }

 private:
  static constexpr int kFew = 8;
  static constexpr std::size_t kMaxKinds = 64;

  struct Kind {
    const void* kind = nullptr;
    std::uint64_t last_begun = 0;  // the number of the wait of this kind that began last
    int waits = 0;                 // that have ended, up to kFew
    WaitHistory history = {};
  };

  // A kind that has no place takes that of the kind whose last wait is longest ago.
  Kind& Find(const void* kind) {
    Kind* found = &kinds_[0];
    for (Kind& one : kinds_) {
      if (one.kind == kind) {
        found = &one;
        break;
      }
      if (one.last_begun < found->last_begun) found = &one;
    }
    if (found->kind != kind) *found = {.kind = kind};
    found->last_begun = ++begun_;
    return *found;
  }

  void Count() {
    if (kind_->waits < kFew && ++kind_->waits == kFew) kind_->history.at_once = all_.at_once;
  }

  WaitHistory all_;
  std::array<Kind, kMaxKinds> kinds_;
  std::uint64_t begun_ = 0;  // waits that have a kind
  Kind* kind_ = nullptr;     // of the wait that began last
};

}  // namespace tutti

#endif  // TUTTI_ENGINE_WAIT_HISTORY_H_
