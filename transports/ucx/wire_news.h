// What the wires of a rank (wire.h, short_wire.h) tell it, so that it visits only those that have something to do.
#ifndef TUTTI_TRANSPORTS_UCX_WIRE_NEWS_H_
#define TUTTI_TRANSPORTS_UCX_WIRE_NEWS_H_

#include <cstdint>
#include <vector>

#include "tutti/dtype.h"

namespace tutti::ucx {

// A message whose part on the wire is over: the kernel has taken all that is sent, or all has been received.
struct WireEnd {
  bool receives;
  std::uint32_t operation;  // the caller's number of the Send or Recv
};

struct WireNews {
  std::vector<WireEnd> ended;
  std::vector<Rank> ready;        // peers whose wires have begun to be ready, each once until its next Progress
  std::vector<Rank> short_ready;  // the same of short wires
  std::vector<Rank> broken;       // peers whose wires have broken
  std::vector<Rank> short_ended;  // peers from whose short wires nothing more comes
  int under_way = 0;              // messages on the wires that the rank waits for
  int unawaited = 0;              // frames on short wires, not yet taken by the kernel, for which no Send waits
};

}  // namespace tutti::ucx

#endif  // TUTTI_TRANSPORTS_UCX_WIRE_NEWS_H_
