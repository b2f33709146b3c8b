// The record of an algorithm, which says how replicas are kept in step, and the strategy names that select one. One
// file defines one algorithm.
#ifndef TUTTI_ALGORITHM_H_
#define TUTTI_ALGORITHM_H_

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "tutti/codec.h"
#include "tutti/plan.h"
#include "tutti/plan_builder.h"

namespace tutti {

// Exchanges is the kind of values that ranks exchange; Phase is the moment of a training step at which they do.
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
  // OK when `value` is one of `values`; otherwise an error that says what would be right. The default must be valid.
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
  // The algorithm's options in its own order, then, if the algorithm encodes, `codec` and the options of that codec.
  std::vector<std::pair<std::string, std::string>> options;

  // Whether there is an option `name`.
  bool has(absl::string_view name) const;
  // The value of option `name`: its text, whether the text is "true", and the whole number that it is. An algorithm
  // that asks for an option that there is not, or for a number where the option's check lets another text pass, has a
  // mistake in its file: the process then ends, with a message that names the algorithm, the option and the options
  // there are.
  absl::string_view option(absl::string_view name) const;
  bool flag(absl::string_view name) const { return option(name) == "true"; }
  std::int64_t integer(absl::string_view name) const;
  // The strategy name in full, with every option.
  std::string ToString() const;
};

// The round that runs in optimizer step `step` (from 0), or kNoExchange. Options are read when the function is made,
// not in every step. Thread-safe.
using RoundOfStep = std::function<int(std::int64_t step)>;
inline constexpr int kNoExchange = -1;

// The rounds of an algorithm of Phase::kBackground: when they come, and what comes before the first one.
struct BackgroundRounds {
  absl::Duration interval;            // time from the end of a round to the next round
  absl::string_view interval_option;  // the option that gives the interval, for errors
  // An average is applied at most so many optimizer steps after its snapshot; 0: however late it comes.
  std::int64_t max_staleness = 0;
  // The number of optimizer steps before the first round, and the strategy by which these steps exchange gradients.
  std::int64_t warmup_steps = 0;
  std::string warmup_strategy;
};

struct Algorithm {
  absl::string_view name;
  absl::string_view summary;
  absl::string_view cost;  // wire bytes per rank as a formula, for the docs
  // What the synchronizer does in a step. The pairs that there are: gradients or momentum in backward, weights in
  // forward, weights or their differences after the step, weights in the background.
  Exchanges exchanges;
  Phase phase;
  absl::Span<const AlgorithmOption> options;
  // The codec that encodes messages where the strategy name gives none; "none": messages are not encoded there.
  // Strategy names take the option `codec` and the options of the codec (CodecOptionTable) as well. Empty: the
  // algorithm never encodes, and its strategy names take no such options.
  absl::string_view codec = "";
  // A bucket may have several plans, called rounds: one per choice of peers, or one per part of the training. `rounds`
  // returns their number; `round_of`, called once, returns the function that says which round a step runs. Where both
  // are null, there is one round, which runs in every step: so it is with algorithms that exchange gradients, or in the
  // background. One that exchanges momentum runs the round that its MomentumSource returns (synchronizer.h). A round
  // that there is not, of `round_of` or a MomentumSource, is an error of the step on every rank. `size`, here and
  // below, is the number of ranks that exchange (ParticipantsOf).
  int (*rounds)(const Strategy& strategy, int size) = nullptr;
  RoundOfStep (*round_of)(const Strategy& strategy, int size) = nullptr;
  // OK, or the reason why buckets of this kind cannot be kept in step in this world; names the option. Equal on all
  // ranks.
  absl::Status (*supports)(const Strategy& strategy, const CollectiveSpec& bucket, int size, const PlanOptions& plan);
  // The share of each rank's weights in the result of `rank`, in rank order: a row of a matrix whose rows and columns
  // sum to 1. Null, or an empty row: the result is what builder.spec() promises (see `build`).
  std::vector<double> (*mixing)(const Strategy& strategy, int round, Rank rank, int size) = nullptr;
  // Writes the plan of one round of one bucket, for which `supports` has returned OK. builder.spec() is an all_reduce
  // of the bucket. The all_reduce is in place where WorksInPlace holds; otherwise it goes from a snapshot of the
  // weights to separate memory, because the training changes the weights meanwhile.
  void (*build)(const Strategy& strategy, int round, PlanBuilder& builder);
  // The rounds that `strategy` asks for. Algorithms of Phase::kBackground have this function, and no others do.
  BackgroundRounds (*background)(const Strategy& strategy) = nullptr;
  // The optimizer that makes the momentum, and where users find the optimizer, for errors. Algorithms of
  // Exchanges::kMomentum have one, and no others do.
  absl::string_view optimizer = "";
};

// The ranks that exchange, in rank order: all ranks, or with hierarchical=true the leader of each node (see BuildPlan).
std::vector<Rank> ParticipantsOf(const Strategy& strategy, int size, const PlanOptions& options = {});
// Call the functions of Algorithm named `rounds`, `round_of` and `mixing`; a function that is null is replaced by its
// default. `participants` is the number of ranks that exchange.
int RoundsOf(const Strategy& strategy, int participants);
RoundOfStep RoundOf(const Strategy& strategy, int participants);
std::vector<double> MixingOf(const Strategy& strategy, int round, Rank participant, int participants);
// Whether results are averages over the ranks: always, but for an algorithm with an option `average` that is false,
// whose results are sums.
bool Averages(const Strategy& strategy);
// Whether buckets of the algorithm hold weights rather than gradients.
bool ExchangesWeights(const Algorithm& algorithm);
// Whether plans of the algorithm work on values where they lie. Otherwise a plan reads a snapshot and writes elsewhere,
// because the training changes the weights while the plan runs.
bool WorksInPlace(const Algorithm& algorithm);

// Every algorithm of this process, those of extensions (extension.h) too, in alphabetical order. What is returned stays
// valid.
absl::Span<const Algorithm* const> AllAlgorithms();

// "name" or "name:option=value,option=value". InvalidArgument lists the valid algorithms, options or values.
absl::StatusOr<Strategy> ParseStrategy(absl::string_view strategy_name);

// The codec that the strategy encodes with, and its options; the codec is null when the strategy does not encode.
CodecChoice CodecOf(const Strategy& strategy);

// Every option of a codec that a strategy name can give. Each codec takes some of them (Codec::options) and has its own
// defaults.
absl::Span<const AlgorithmOption> CodecOptionTable();

// The plan of one rank for one round of a bucket of `count` elements. Unimplemented with the reason when the algorithm
// does not serve the bucket. With the option hierarchical=true and several nodes the algorithm runs among one rank of
// each node, its leader: values of a node's ranks are first reduced to the leader, losslessly, and the leader's result
// is broadcast to them.
absl::StatusOr<Plan> BuildPlan(const Strategy& strategy, DType dtype, std::int64_t count, Rank rank, int size,
                               const PlanOptions& options, int round = 0);

}  // namespace tutti

// Defines the algorithm of the file <name>.cc: TUTTI_ALGORITHM(name) = {.name = "name", …}; in Tutti's tree the file
// lies in algorithms, elsewhere it is given to tutti_add_extensions (extension.h).
#define TUTTI_ALGORITHM(name)                             \
  extern const ::tutti::Algorithm tutti_algorithm_##name; \
  constinit const ::tutti::Algorithm tutti_algorithm_##name

#endif  // TUTTI_ALGORITHM_H_
