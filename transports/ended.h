// The operations of one transport that have ended and whose owners have not been told yet.
#ifndef TUTTI_TRANSPORTS_ENDED_H_
#define TUTTI_TRANSPORTS_ENDED_H_

#include <cstddef>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "tutti/transport.h"

namespace tutti {

class EndedQueue {
 public:
  // A queue that allocates nothing while at most `room` operations are in it, and nothing in the long run once it has
  // grown.
  explicit EndedQueue(std::size_t room = 0) {
    ended_.reserve(room);
    calling_.reserve(room);
  }

  void End(Completion* completion, absl::Status status) { ended_.push_back({completion, std::move(status)}); }

  // Calls the completions; false when there were none. Completions may post operations, which may fill the queue anew:
  // what the completions add is for the next CallAll.
  bool CallAll() {
    if (ended_.empty()) return false;
    calling_.swap(ended_);
    for (const Ended& ended : calling_) ended.completion->done(ended.completion, ended.status);
    calling_.clear();
    return true;
  }

  bool empty() const { return ended_.empty(); }
  std::size_t size() const { return ended_.size(); }

 private:
  struct Ended {
    Completion* completion;
    absl::Status status;
  };

  std::vector<Ended> ended_;
  std::vector<Ended> calling_;  // swapped with `ended_`, so that nothing allocates
};

}  // namespace tutti

#endif  // TUTTI_TRANSPORTS_ENDED_H_
