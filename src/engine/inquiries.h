// What ranks whose memory is not mapped have answered when they were asked for whom they wait.
#ifndef TUTTI_ENGINE_INQUIRIES_H_
#define TUTTI_ENGINE_INQUIRIES_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "tutti/dtype.h"
#include "tutti/transport.h"

namespace tutti {

// Belongs to the engine's driver. Times are CLOCK_MONOTONIC in nanoseconds.
class Inquiries {
 public:
  Inquiries(Transport& transport, int size) : transport_(transport), ranks_(static_cast<std::size_t>(size)) {}

  // Asks `rank`, unless a question to it is open or it has just answered.
  void Ask(Rank rank, std::int64_t now_ns);
  // The answer that `rank` has given within the last half second: a rank of the world, or -1 for nobody; nullopt when
  // `rank` has not answered, as while `rank` is stopped or computes.
  std::optional<Rank> AnswerOf(Rank rank, std::int64_t now_ns);

 private:
  struct OfRank {
    bool open = false;
    Rank answer = -1;
    std::int64_t silent_ns = 0;    // when the open question was last seen without an answer
    std::int64_t answered_ns = 0;  // when the rank answered last; 0: never
  };

  // Takes the answer to an open question in.
  OfRank& Look(Rank rank, std::int64_t now_ns);

  Transport& transport_;
  std::vector<OfRank> ranks_;
};

}  // namespace tutti

#endif  // TUTTI_ENGINE_INQUIRIES_H_
