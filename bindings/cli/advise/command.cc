// tutti advise --link 1G --ranks 8 --parameters 20M --step-ms 50: says which strategy makes the steps of a training
// shortest.
#include "bindings/cli/command.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "bindings/cli/advise/quantities.h"
#include "bindings/cli/advise/report.h"
#include "bindings/cli/advise/training.h"
#include "bindings/cli/flags.h"
#include "bindings/cli/sizes.h"
#include "tutti/rounding.h"

namespace tutti::cli {
namespace {

// All ranks' plans are played together, and their number of messages grows with the square of the ranks.
constexpr int kMaxAdvisedRanks = 128;

// A prediction keeps an entry for each bucket.
constexpr std::int64_t kMaxBuckets = 1'000'000;

struct AdviseFlags {
  AdvisedTraining training;
  double link = 0;  // 0: not given
  absl::Duration delay = absl::Seconds(DefaultCostModel().between_nodes.latency_s);
  double step_ms = 0;
  double memory_bandwidth = DefaultCostModel().memory_bytes_per_s;
  bool json = false;
};

absl::StatusOr<std::int64_t> ParseBucketBytes(absl::string_view text) {
  absl::StatusOr<std::int64_t> bytes = ParseBytes(text);
  if (!bytes.ok() || *bytes >= SizeOf(DType::kF32)) return bytes;
  return absl::InvalidArgumentError(
      absl::StrCat("'", text, "' has room for no parameter; write at least 4 bytes, as 1M or 25M"));
}

absl::Status CheckBuckets(const AdvisedTraining& training) {
  const std::int64_t rest = std::max<std::int64_t>(training.parameters - training.first_bucket_parameters(), 0);
  const std::int64_t buckets = 1 + DivideRoundingUp(rest, training.bucket_parameters());
  if (buckets <= kMaxBuckets) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--bucket-bytes ", FormatBytes(training.bucket_bytes), " cuts the ", training.parameters,
                   " of --parameters into ", buckets, " buckets, more than the ", kMaxBuckets,
                   " that can be predicted: write --bucket-bytes ",
                   DivideRoundingUp(rest, kMaxBuckets - 1) * SizeOf(DType::kF32), " or more"));
}

// `between_nodes` are the flags given that describe what lies between nodes.
absl::Status CheckLink(const AdviseFlags& flags, const std::vector<std::string>& between_nodes) {
  const AdvisedTraining& training = flags.training;
  if (!training.one_node() && flags.link == 0) {
    return absl::InvalidArgumentError(
        "--link is missing: how fast is the link of a node, for example 1G? (Ranks on one node need none: "
        "--ranks-per-node)");
  }
  if (!training.one_node() || between_nodes.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(absl::StrJoin(between_nodes, ", "), ": all ", training.ranks,
                                                 " ranks are on one node, and nothing passes a link; leave ",
                                                 between_nodes.size() == 1 ? "it" : "them",
                                                 " out, or lower --ranks-per-node"));
}

absl::StatusOr<int> ShowAdvice(AdviseFlags flags, const std::vector<std::string>& between_nodes) {
  AdvisedTraining& training = flags.training;
  if (absl::Status link = CheckLink(flags, between_nodes); !link.ok()) return link;
  if (training.layer_parameters > training.parameters) {
    return absl::InvalidArgumentError(absl::StrCat("--layer-parameters is ", training.layer_parameters,
                                                   ", more than the ", training.parameters,
                                                   " of --parameters, to which the layer belongs"));
  }
  if (absl::Status buckets = CheckBuckets(training); !buckets.ok()) return buckets;
  training.step_s = flags.step_ms / 1e3;
  CostModel& model = training.model;
  if (flags.link > 0) model.between_nodes.bytes_per_s = flags.link;
  model.between_nodes.latency_s = absl::ToDoubleSeconds(flags.delay);
  const double faster = flags.memory_bandwidth / model.memory_bytes_per_s;
  for (double* rate : {&model.memory_bytes_per_s, &model.copy_bytes_per_s, &model.scratch_bytes_per_s}) *rate *= faster;
  const absl::StatusOr<Advice> advice = Advise(training);
  if (!advice.ok()) return advice.status();
  std::fputs((flags.json ? ToJson(*advice) : ToTable(*advice)).c_str(), stdout);
  return 0;
}

void AddFlags(CLI::App& advise, AdviseFlags& flags) {
  AdvisedTraining& training = flags.training;
  advise.add_option("--ranks", training.ranks, "Ranks of the training")
      ->required()
      ->check(WholeNumberWithin(2, kMaxAdvisedRanks));
  advise.add_option("--ranks-per-node", training.ranks_per_node, "Ranks that share a node, and the link of the node")
      ->check(WholeNumberWithin(1, kMaxAdvisedRanks))
      ->capture_default_str();
  AddParsed(
      advise, "--link", flags.link, ParseRate, "RATE", "",
      "Needed where the ranks are on several nodes: what the link of a node carries in each direction, headers of TCP "
      "left out (5 % on Ethernet): bits per second as 100M, 1G, 25Gbit or 100Mb/s; bytes per second, with a capital B, "
      "as 125MB or 3GB/s");
  AddParsed(advise, "--delay", flags.delay, ParseDelay, "TIME", "1.5us",
            "How long a message of no bytes is on its way between nodes: 50us, 2ms");
  AddParsed(advise, "--parameters", training.parameters, ParseCount, "COUNT", "",
            "Parameters that are trained, as fp32: 350K, 20M or 1.5B (thousands, millions, billions)")
      ->required();
  AddParsed(
      advise, "--layer-parameters", training.layer_parameters, ParseCount, "COUNT", "1",
      "Parameters of the largest layer: gradients of a layer are complete all at once, and no bucket leaves before. "
      "For models whose layers compute for as long as they have parameters, as MLPs and transformers; 1: gradients "
      "become complete at an even pace");
  advise
      .add_option("--step-ms", flags.step_ms,
                  "Milliseconds of a step on one rank when nothing is exchanged: forward, backward and optimizer; all "
                  "forwards and backwards of the step, where several come before one optimizer step (--accumulate)")
      ->required()
      ->check(NumberWithin(1e-3, 1e9));
  advise
      .add_option(
          "--accumulate", training.backwards,
          "Backwards in a step, whose gradients are added up and exchanged once: only the last backward hides what "
          "travels. Strategies that exchange weights do so once in a step, and may hide them behind all of it")
      ->check(WholeNumberWithin(1, 1'000'000))
      ->capture_default_str();
  advise
      .add_option("--cores-per-rank", training.cores_per_rank,
                  "Processors of a rank that training keeps busy, so that communication takes time from training; 0.5 "
                  "where two ranks share one; 0: communication has processors of its own, as where a GPU trains")
      ->check(NumberWithin(0, kMaxRanks))
      ->capture_default_str();
  AddParsed(
      advise, "--memory-bandwidth", flags.memory_bandwidth, ParseRate, "RATE", "25GB",
      "Bytes that a processor reads and writes per second, which bound reductions, and codecs that do not compute for "
      "longer; 1.25 times what memcpy copies: 25GB");
  AddParsed(advise, "--bucket-bytes", training.bucket_bytes, ParseBucketBytes, "BYTES", "25M",
            "bucket_bytes of the synchronizer, in binary units: 25M are 26214400 bytes");
  AddParsed(advise, "--first-bucket-bytes", training.first_bucket_bytes, ParseBucketBytes, "BYTES", "1M",
            "first_bucket_bytes of the synchronizer");
  advise.add_flag("--adam", training.uses_adam, "The training uses Adam, so that qadam, which is an Adam, competes");
  advise.add_flag("--accept-loss", training.accepts_loss,
                  "Strategies that have lost accuracy where they were measured compete: async, sign and topk. Without "
                  "this flag they are shown, and are never the advice");
  advise.add_flag("--json", flags.json, "Print a JSON document in place of the table, with times in seconds");
}

}  // namespace

void AddAdvise(CLI::App& app, Invocation& invocation) {
  CLI::App* advise = app.add_subcommand("advise", "Compare the strategies for a training on a link, and name the best");
  auto flags = std::make_shared<AdviseFlags>();
  AddFlags(*advise, *flags);
  advise->footer("Example: tutti advise --link 1G --ranks 8 --parameters 20M --step-ms 50");
  advise->callback([advise, flags, &invocation] {
    invocation.action = [advise, flags] { return ShowAdvice(*flags, GivenAmong(*advise, {"--link", "--delay"})); };
  });
}

}  // namespace tutti::cli
