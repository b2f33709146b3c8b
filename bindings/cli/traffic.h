// What one call of a benchmark moves: the sizes, memory and results of a collective, defined as nccl-tests defines
// them.
#ifndef TUTTI_BINDINGS_CLI_TRAFFIC_H_
#define TUTTI_BINDINGS_CLI_TRAFFIC_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tutti/collective.h"

namespace tutti::cli {

// Names of what can be measured: every collective, with send and recv together as "send_recv", in which each rank sends
// to the next rank and receives from the rank before.
std::vector<std::string> BenchNames();
// "f32 f64 …" and "sum avg …": what --dtype and --op take.
std::string NamesOfDTypes();
std::string NamesOfOps();
// `name`, when it is one of BenchNames or "all". InvalidArgument suggests a name.
absl::StatusOr<std::string> ParseBenchName(absl::string_view name);

// A run of elements of a result: elements [first, first + count) of what `source` supplied.
struct Piece {
  static constexpr int kReduced = -1;  // in place of a rank: the reduction over all ranks
  int source = 0;
  std::int64_t first = 0;
  std::int64_t at = 0;  // index in the result
  std::int64_t count = 0;
};

struct TrafficOptions {
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;
  Rank root = 0;
  bool in_place = true;  // where the collective has an in-place form
};

struct Traffic {
  std::string name;
  CollectiveSpec spec;     // for send_recv, the spec of the send
  std::int64_t count = 0;  // elements of a block, also of all_to_all_v, whose blocks are equal here
  Rank rank = 0;
  int size = 1;

  // The rank from which this rank receives in send_recv, where it sends to spec.root.
  Rank previous() const { return (rank + size - 1) % size; }
  // The size that nccl-tests prints: bytes of the larger of input and output of a rank that has both.
  std::int64_t bytes() const;
  std::int64_t input_count() const;
  std::int64_t output_count() const;
  // Where, in elements, input and output start in the one buffer of an in-place call, which has in_place_count()
  // elements, as many as the longer of the two.
  std::int64_t in_place_count() const;
  std::int64_t in_place_input() const;
  std::int64_t in_place_output() const;
  // The output of this rank; empty where this rank has no output.
  std::vector<Piece> expected() const;
  // The factor by which nccl-tests multiplies the algorithm bandwidth (algbw) to get the bus bandwidth (busbw).
  double bus_factor() const;
};

// InvalidArgument when `given`, flags as the user wrote them, has --root, --op or --in-place although `collective` has
// no root, reduces nothing or has no in-place form: what such a flag says would be ignored.
absl::Status CheckFlags(Collective collective, absl::Span<const std::string> given);

// The traffic of `count` elements as CollectiveSpec counts them or, when `count` is negative, of about `bytes` in the
// sense of Traffic::bytes, one element per block at least. Of kSend and kRecv, options.root is the peer.
// InvalidArgument names what the collective cannot do.
absl::StatusOr<Traffic> MakeTraffic(Collective collective, const TrafficOptions& options, std::int64_t bytes,
                                    std::int64_t count, Rank rank, int size);

// The traffic that the benchmark `name` (of BenchNames) has at a size of about `bytes`.
absl::StatusOr<Traffic> MakeBenchTraffic(const std::string& name, const TrafficOptions& options, std::int64_t bytes,
                                         Rank rank, int size);

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_TRAFFIC_H_
