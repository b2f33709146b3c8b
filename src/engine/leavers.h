// Which ranks have left the world, as the transport says when it is asked. An answer may take as long as
// Transport::Drain, so a look at all ranks asks for a limited time, and the next look goes on where this one stopped.
#ifndef TUTTI_ENGINE_LEAVERS_H_
#define TUTTI_ENGINE_LEAVERS_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "tutti/transport.h"

namespace tutti {

class Leavers {
 public:
  // `now_ns`: CLOCK_MONOTONIC.
  Leavers(Transport& transport, std::size_t ranks, std::int64_t (*now_ns)())
      : transport_(transport), now_ns_(now_ns), answers_(ranks) {}

  void BeginLook() {
    may_ask_ = true;
    end_ns_ = now_ns_() + absl::ToInt64Nanoseconds(kLongestLook);
  }
  void EndLook() {
    if (!std::exchange(skips_, false)) ++round_;
  }
  // Whether `rank` of the world is known to have left; called in a look. Each rank is asked for once in a round, which
  // takes one look, or several where answers take long; other calls get that answer.
  bool HasLeft(Rank rank) {
    Answer& answer = answers_[static_cast<std::size_t>(rank)];
    if (answer.left || answer.round == round_) return answer.left;
    if (!may_ask_) {
      skips_ = true;
      return false;
    }
    answer = {.left = transport_.HasLeft(rank), .round = round_};
    may_ask_ = now_ns_() < end_ns_;
    return answer.left;
  }

 private:
  // After so much time nobody else is asked for.
  static constexpr absl::Duration kLongestLook = absl::Milliseconds(10);

  struct Answer {
    bool left = false;
    std::uint64_t round = 0;
  };

  Transport& transport_;
  std::int64_t (*const now_ns_)();
  std::vector<Answer> answers_;  // by rank of the world
  std::uint64_t round_ = 1;
  std::int64_t end_ns_ = 0;
  bool may_ask_ = true;
  bool skips_ = false;  // a rank was not asked for in this look
};

}  // namespace tutti

#endif  // TUTTI_ENGINE_LEAVERS_H_
