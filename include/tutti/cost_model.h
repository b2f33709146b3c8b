// The machine for which plans are costed and schedules are chosen, as a few numbers.
//
// Example: what the ring would cost over a network of 100 Gb/s, and which schedule would be chosen there.
//   CostModel model = DefaultCostModel();
//   model.between_nodes = {.latency_s = 5e-6, .bytes_per_s = 12e9, .message_s = 1e-6};
//   PlanOptions options = {.nodes = {0, 1, 2, 3}, .cost_model = std::make_shared<const CostModel>(model)};
//   const absl::StatusOr<Selection> chosen = SelectSchedule(spec, /*size=*/4, options);
#ifndef TUTTI_COST_MODEL_H_
#define TUTTI_COST_MODEL_H_

#include <cstdint>
#include <string>

namespace tutti {

// How many times as long a message takes on the way that comes to a node after one of another node: messages of several
// senders do not follow each other as closely as those of one. Measured on 4 hosts at 1 Gb/s: `two_shot`, in which
// senders alternate, took 1.04 to 1.07 times as long as `ring`, which has one; `halving_doubling`, which turns to
// another peer in each step, lost more on 8 and 16 hosts whose ranks shared two processors.
inline constexpr double kAfterOtherNode = 1.1;

// One direction of a connection. A message of b bytes takes latency_s + b / bytes_per_s on the way (Hockney's model).
// Messages in one direction share its bandwidth, one after the other: those of a rank, and between nodes those of all
// ranks of a node. Besides, each end spends message_s + b / copy_bytes_per_s of its processor's time on a message.
struct LinkModel {
  double latency_s = 0;
  double bytes_per_s = 10e9;
  double message_s = 0;
  double copy_bytes_per_s = 0;  // 0: the hardware moves the bytes
  // A message of announced_bytes or more is announced: its receiver copies the payload once, from the sender's memory,
  // at the lower of announced_bytes_per_s and bytes_per_s, and nothing else costs time by the byte. 0: no message is.
  std::int64_t announced_bytes = 0;
  double announced_bytes_per_s = 0;

  bool Announces(std::int64_t bytes) const { return announced_bytes > 0 && bytes >= announced_bytes; }

  bool operator==(const LinkModel&) const = default;
};

// A transport that performs whole collectives (native.h). A native collective takes latency_s, and for each byte that
// the rank with most to move must give or take (NativeBytes) 1 / bytes_per_s; it begins when all ranks have come to it.
struct NativeModel {
  double latency_s = 0;
  double bytes_per_s = 0;  // 0: nothing is known, and no time can be predicted

  bool operator==(const NativeModel&) const = default;
};

// The seconds that a message of `bytes` takes of the sender's processor, of the link in one direction, and of the
// receiver's processor.
double SendingSeconds(const LinkModel& link, std::int64_t bytes);
double TransferSeconds(const LinkModel& link, std::int64_t bytes);
double ReceivingSeconds(const LinkModel& link, std::int64_t bytes);

struct CostModel {
  // Messages between ranks of one node: both ends copy them, unless they are announced. Mapped memory costs no message:
  // a step that reads or writes it pays memory_bytes_per_s or copy_bytes_per_s once.
  LinkModel within_node;
  LinkModel between_nodes;
  // Consecutive ranks that share a node, for plans whose ranks have no nodes (see CostOf); 0: all ranks do.
  int ranks_per_node = 0;
  // The time to issue one step. Steps of one rank that compute run one after the other.
  double step_s = 0;
  // The time from a rank's signal until a peer's Wait sees it.
  double signal_s = 0;
  // Bytes that a rank can read or write per second, wherever they lie, in steps that compute.
  double memory_bytes_per_s = 10e9;
  // Bytes read or written per second by steps that copy without converting; 0: as memory_bytes_per_s.
  double copy_bytes_per_s = 0;
  // Bytes of scratch, of any rank, are read and written at this rate at most: calls that follow each other use
  // different scratch, which lies in no cache. 0: as fast as other memory.
  double scratch_bytes_per_s = 0;
  // Processors that the ranks of a node share; 0: every rank has a processor of its own. Where ranks outnumber them, a
  // processor that turns to another rank needs switch_s.
  int cores_per_node = 0;
  double switch_s = 0;
  // Native collectives among ranks of one node, and of several nodes.
  NativeModel native_within_node = {};
  NativeModel native_between_nodes = {};

  bool operator==(const CostModel&) const = default;
};

// The numbers of this model were measured as docs/selection.md says.
const CostModel& DefaultCostModel();

// "messages take 0.5 µs + bytes / 6.0 GB/s inside a node, …": one line, without a newline at its end.
std::string ToString(const CostModel& model);

}  // namespace tutti

#endif  // TUTTI_COST_MODEL_H_
