// Algorithms: how replicas are kept in step. One file under algorithms/ defines one algorithm.
#ifndef TUTTI_ALGORITHM_H_
#define TUTTI_ALGORITHM_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tutti/codec.h"
#include "tutti/plan.h"
#include "tutti/plan_builder.h"

namespace tutti {

enum class Exchanges : std::uint8_t { kGradients, kWeights, kMomentum, kWeightDifferences };
enum class Phase : std::uint8_t { kBackward, kForward, kAfterStep, kBackground };
absl::string_view Name(Exchanges exchanges);
absl::string_view Name(Phase phase);

// One option of an algorithm, as users write it in a strategy name.
struct AlgorithmOption {
  absl::string_view name;
  absl::string_view default_value;
  absl::string_view values;  // for the docs and errors: "true | false", "a power of two, or 0 for the whole message"
  absl::string_view doc;
  // OK when `value` is one of `values`; otherwise what would be right.
  absl::Status (*check)(const AlgorithmOption& option, absl::string_view value);
};

// Checks for AlgorithmOption::check.
absl::Status CheckListed(const AlgorithmOption& option, absl::string_view value);    // `values` is a list: "a | b | c"
absl::Status CheckSchedule(const AlgorithmOption& option, absl::string_view value);  // "auto", or names an all_reduce
absl::Status CheckPeerSelection(const AlgorithmOption& option, absl::string_view value);  // names a peer selection
absl::Status CheckPositive(const AlgorithmOption& option, absl::string_view value);       // an integer from 1 on
absl::Status CheckNotNegative(const AlgorithmOption& option, absl::string_view value);    // an integer from 0 on

struct Algorithm;

// A strategy name, parsed: "bytegrad:codec=uint8_block,block=512". Every option has a value.
struct Strategy {
  const Algorithm* algorithm = nullptr;
  // Those of the algorithm in its order, then `codec` and those of the codec, when the algorithm encodes.
  std::vector<std::pair<std::string, std::string>> options;

  // Empty when the algorithm has no such option.
  absl::string_view option(absl::string_view name) const;
  bool flag(absl::string_view name) const { return option(name) == "true"; }
  std::int64_t integer(absl::string_view name) const;
  // The full form, with every option.
  std::string ToString() const;
};

struct Algorithm {
  absl::string_view name;
  absl::string_view summary;
  absl::string_view cost;  // wire bytes per rank as a formula, for the docs
  Exchanges exchanges;
  Phase phase;
  absl::Span<const AlgorithmOption> options;
  // The codec when the strategy name gives none; "none": it encodes only when one is given. Its strategy names then
  // take the options `codec` and those of the codec (CodecOptionTable) as well. Empty: it never encodes.
  absl::string_view codec = "";
  // A bucket may have several plans, its rounds: one per constellation of peers, or one per part of the training. Their
  // number, and the one that runs in optimizer step `step` (from 0), or kNoExchange. Null: one round, in every step;
  // with momentum its source has the last word (synchronizer.h). `size`, here and below: of those who exchange, see
  // ParticipantsOf.
  int (*rounds)(const Strategy& strategy, int size);
  int (*round_of)(const Strategy& strategy, std::int64_t step, int size);
  // OK, or why buckets of that kind cannot be kept in step in this world; names the option. Equal on all ranks.
  absl::Status (*supports)(const Strategy& strategy, const CollectiveSpec& bucket, int size, const PlanOptions& plan);
  // The part of each rank's weights in what `rank` ends with, in rank order: a row of a matrix whose rows and columns
  // sum to 1. Null, or nothing: it ends with what builder.spec() promises, see `build`.
  std::vector<double> (*mixing)(const Strategy& strategy, int round, Rank rank, int size) = nullptr;
  // Writes the plan of one round of one bucket; `supports` holds. builder.spec() is an all_reduce of the bucket: in
  // place where WorksInPlace; otherwise from a snapshot of weights to a memory of its own, since training goes on from
  // them meanwhile.
  void (*build)(const Strategy& strategy, int round, PlanBuilder& builder);
};

inline constexpr int kNoExchange = -1;
// The ranks that exchange, in order: all, or with hierarchical=true the leaders of the nodes (see BuildPlan).
std::vector<Rank> ParticipantsOf(const Strategy& strategy, int size, const PlanOptions& options = {});
// `participants`: their number. As the members of Algorithm, with what null stands for.
int RoundsOf(const Strategy& strategy, int participants);
int RoundOf(const Strategy& strategy, std::int64_t step, int participants);
std::vector<double> MixingOf(const Strategy& strategy, int round, Rank participant, int participants);
// Whether buckets hold weights rather than gradients.
bool ExchangesWeights(const Algorithm& algorithm);
// Whether plans work on the values where they lie. Otherwise they read a snapshot and write elsewhere, since the
// training goes on from the weights while these travel.
bool WorksInPlace(const Algorithm& algorithm);

// Every algorithm of this build in alphabetical order (generated from algorithms/*.cc).
absl::Span<const Algorithm* const> AllAlgorithms();

// "name" or "name:option=value,option=value". InvalidArgument lists the valid algorithms, options or values.
absl::StatusOr<Strategy> ParseStrategy(absl::string_view strategy_name);

// The codec that the strategy encodes with, and its options; no codec when there is none.
CodecChoice CodecOf(const Strategy& strategy);

// What strategy names can tell codecs. Each codec takes some of these (Codec::options) and has its own defaults.
absl::Span<const AlgorithmOption> CodecOptionTable();

// The plan of one rank for one round of a bucket of `count` elements. Unimplemented with the reason when the algorithm
// does not serve the bucket. With the option hierarchical=true and several nodes the algorithm runs between one rank
// of each node, its leader: what the ranks of a node have is first reduced to it, losslessly, and its result broadcast
// to them.
absl::StatusOr<Plan> BuildPlan(const Strategy& strategy, DType dtype, std::int64_t count, Rank rank, int size,
                               const PlanOptions& options, int round = 0);

}  // namespace tutti

// Defines the algorithm of algorithms/<name>.cc; the manifest finds it by the file's name.
#define TUTTI_ALGORITHM(name) extern constinit const ::tutti::Algorithm tutti_algorithm_##name

#endif  // TUTTI_ALGORITHM_H_
