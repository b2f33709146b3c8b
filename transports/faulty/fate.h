// The fate of a message: what a FaultPlan does to it, a pure function of the plan, the two ranks and the message's
// number.
#ifndef TUTTI_TRANSPORTS_FAULTY_FATE_H_
#define TUTTI_TRANSPORTS_FAULTY_FATE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "tutti/faulty_transport.h"

namespace tutti::faulty {

struct Fate {
  bool lost = false;
  bool link_lost = false;  // every later message to the peer is lost, too
  bool duplicated = false;
  bool corrupted = false;
  bool truncated = false;
  bool overtaken = false;
  absl::Duration patience;          // how long an overtaken message waits for the next message
  absl::Duration delay;             // drawn for kDelay
  absl::Duration latency;           // the delay of kSlow
  double seconds_per_byte = 0;      // the inverse of kSlow's bandwidth
  std::uint64_t damage = 0;         // a drawn number, which says which bit is flipped, or how much is cut off
  std::vector<FaultKind> befallen;  // all faults that hit the message, for FaultPlan::on_fault
};

absl::Status Validate(const FaultPlan& plan);

Fate FateOf(const FaultPlan& plan, Rank from, Rank to, std::int64_t number);
// Whether `rank` dies instead of posting its message `number`, or at kAtConnect.
bool Dies(const FaultPlan& plan, Rank rank, std::int64_t number);

bool Has(const FaultPlan& plan, FaultKind kind);

}  // namespace tutti::faulty

#endif  // TUTTI_TRANSPORTS_FAULTY_FATE_H_
