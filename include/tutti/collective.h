// What a collective call asks for: the part of a plan's input that users see.
#ifndef TUTTI_COLLECTIVE_H_
#define TUTTI_COLLECTIVE_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "tutti/dtype.h"

namespace tutti {

enum class Collective : std::uint8_t {
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kReduce,
  kGather,
  kScatter,
  kAllToAll,
  kAllToAllV,
  kBarrier,
  kSend,
  kRecv,
};

inline constexpr std::array<Collective, 12> kAllCollectives = {
    Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather, Collective::kBroadcast,
    Collective::kReduce,    Collective::kGather,        Collective::kScatter,   Collective::kAllToAll,
    Collective::kAllToAllV, Collective::kBarrier,       Collective::kSend,      Collective::kRecv};

// Whether ranks' elements are combined by an operator (CollectiveSpec::op).
bool Reduces(Collective collective);
// Whether the call is one of the two ends of a message: send or recv.
bool IsPointToPoint(Collective collective);
// Whether the call names one rank (CollectiveSpec::root): the root, or the peer of send and recv.
bool HasRoot(Collective collective);
// Whether input and output may be the same memory (CollectiveSpec::in_place).
bool HasInPlaceForm(Collective collective);

// "all_reduce", "all_to_all_v", …: folder names under algorithms/schedules, too.
absl::string_view Name(Collective collective);
// The inverse of Name; InvalidArgument lists the valid names.
absl::StatusOr<Collective> ParseCollective(absl::string_view name);

// One call, as one rank makes it. `count` is what NCCL's argument of that call means:
//   all_reduce, broadcast, reduce, send, recv    elements of the whole buffer
//   reduce_scatter, scatter                      elements each rank receives (input: size·count)
//   all_gather, gather, all_to_all               elements each rank sends to one peer (output: size·count)
//   all_to_all_v                                 unused (0); send_counts and recv_counts hold `size` entries, packed in
//                                                rank order
//   barrier                                      unused (0)
struct CollectiveSpec {
  Collective collective = Collective::kAllReduce;
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;
  std::int64_t count = 0;
  // The root, where the collective has one; for send and recv, the peer, for recv perhaps kAnySource.
  Rank root = 0;
  // Input and output are the same memory. all_gather, gather: the input is this rank's block of the output;
  // reduce_scatter, scatter: the output is this rank's block of the input, whose other blocks keep their value. False
  // if the collective has no in-place form. Equal on all ranks if peers map memory and the collective has no root.
  bool in_place = false;
  std::vector<std::int64_t> send_counts = {};
  std::vector<std::int64_t> recv_counts = {};

  bool operator==(const CollectiveSpec&) const = default;
};

// Elements that `rank` must supply (input) and will receive (output) in a world of `size`; 0 where a rank that is not
// the root has no buffer of that kind.
std::int64_t InputCount(const CollectiveSpec& spec, Rank rank, int size);
std::int64_t OutputCount(const CollectiveSpec& spec, Rank rank, int size);

// InvalidArgument that names the field (root, count, send_counts, in_place …) when the spec makes no sense, and the
// type and the operator when elements of that type cannot be reduced by it.
absl::Status Validate(const CollectiveSpec& spec, Rank rank, int size);

// Text such as "all_reduce f32 sum count=1024".
std::string ToString(const CollectiveSpec& spec);

}  // namespace tutti

#endif  // TUTTI_COLLECTIVE_H_
