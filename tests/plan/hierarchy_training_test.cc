// Compares trainings with hierarchical=true on nodes of two ranks, the last of which may have one rank, with loops over
// all nodes.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "tests/algorithms/references/between_nodes.h"
#include "tests/algorithms/references/bytegrad.h"
#include "tests/algorithms/references/comparison.h"
#include "tests/algorithms/references/decentralized.h"
#include "tests/algorithms/references/low_precision_decentralized.h"
#include "tests/algorithms/references/qadam.h"

namespace tutti {
namespace {

constexpr int kFewSteps = 15;
constexpr int kWarmUp = 5;  // steps of the warm-up
constexpr int kRanksPerNode = 2;
constexpr int kWorlds[] = {3, 4, 5, 6, 8};

int NodesOf(int ranks) { return (ranks + kRanksPerNode - 1) / kRanksPerNode; }

std::unique_ptr<Reference> BetweenNodes(std::unique_ptr<Reference> algorithm) {
  return std::make_unique<BetweenNodesReference>(std::move(algorithm), kRanksPerNode);
}

// Buckets of these trainings are so short that one exchange takes less time than two, which error feedback and casts
// need.
std::unique_ptr<Reference> ByteGradBetweenNodes(int ranks, std::size_t count, const CodecChoice& codec,
                                                bool error_feedback) {
  return BetweenNodes(
      std::make_unique<ByteGradReference>(NodesOf(ranks), /*divisor=*/ranks, count, codec, error_feedback,
                                          /*one_exchange=*/!error_feedback && !codec.codec->linear.has_value()));
}

struct Case {
  std::string strategy;
  bool needs_even_nodes;
  std::function<std::unique_ptr<Reference>(int ranks, const Floats& initial)> make;
};

std::vector<Case> Cases() {
  // The reference of sums: nodes change only the order of summation.
  const auto all_reduce = [](int ranks, const Floats&) { return std::make_unique<GradientAllReduceReference>(ranks); };
  const auto compressed = [](const CodecChoice& codec, bool error_feedback) {
    return [=](int ranks, const Floats& initial) {
      return ByteGradBetweenNodes(ranks, initial.size(), codec, error_feedback);
    };
  };
  const auto decentralized = [](const std::string& selection) {
    return [=](int, const Floats&) { return BetweenNodes(std::make_unique<DecentralizedReference>(selection, 1)); };
  };
  return {
      {"gradient_allreduce:hierarchical=true", false, all_reduce},
      {"gradient_allreduce:hierarchical=true,codec=bf16", false, compressed(CodecOfDefaults("bf16"), false)},
      {"bytegrad", false, compressed(Codec8Bit(), false)},
      {"bytegrad:error_feedback=true", false, compressed(Codec8Bit(), true)},
      {absl::StrCat("async:warmup_steps=", kFewSteps + 1), false, all_reduce},
      {"decentralized", false, [](int, const Floats&) { return std::make_unique<DecentralizedReference>("all", 1); }},
      {"decentralized:peer_selection_mode=ring", true, decentralized("ring")},
      {"decentralized:peer_selection_mode=shift_one", true, decentralized("shift_one")},
      {"low_precision_decentralized", true,
       [](int ranks, const Floats& initial) {
         return BetweenNodes(
             std::make_unique<LowPrecisionDecentralizedReference>(NodesOf(ranks), initial, Codec8Bit(), 1));
       }},
  };
}

Training OnNodes(const std::string& strategy, int ranks, const std::string& transport) {
  Training training = RandomTraining(strategy, ranks, kFewSteps);
  training.world.transport = transport;
  training.world.ranks_per_node = kRanksPerNode;
  return training;
}

void ExpectTrainsAsBetweenNodes(const Case& test, int ranks, const std::string& transport) {
  if (test.needs_even_nodes && ranks % kRanksPerNode != 0) return;
  ExpectTrainsAs(
      OnNodes(test.strategy, ranks, transport), [&](const Floats& initial) { return test.make(ranks, initial); },
      kOrderOfFiftySums);
}

TEST(BetweenNodesTraining, EqualsItsReference) {
  for (const Case& test : Cases()) {
    for (const int ranks : kWorlds) ExpectTrainsAsBetweenNodes(test, ranks, "inproc");
  }
}

TEST(BetweenNodesTraining, EqualsItsReferenceOverEveryTransport) {
  for (const std::string& transport : WorldTransports()) {
    for (const Case& test : Cases()) {
      for (const int ranks : {4, 5}) ExpectTrainsAsBetweenNodes(test, ranks, transport);
    }
  }
}

// A training whose buckets have one parameter each, since the floor of the variance is computed per parameter. Some
// elements have no gradient in the warm-up, so that the floor applies to them. Sums of gradients are exact: in the
// warm-up leaders add in an order of their own, and a difference in the last bit would change codes afterwards.
Training QAdamOnNodes(const std::string& strategy, int ranks, const std::string& transport) {
  Training training = OnNodes(strategy, ranks, transport);
  training.model = {
      .counts = {700, 1201, 2500}, .bucket_bytes = 4096, .first_bucket_bytes = 1024, .buckets = {{2}, {1}, {0}}};
  training.initial = RandomNumbers(training.model.count(), 99);
  training.gradients = RandomGradients(kFewSteps, ranks, training.model.count());
  for (int step = 0; step < kFewSteps; ++step) {
    for (Floats& gradient : training.gradients[step]) {
      for (std::size_t i = 0; i < gradient.size(); ++i) {
        gradient[i] = step < kWarmUp && i % 7 == 0 ? 0 : std::round(gradient[i] * 1000);
      }
    }
  }
  return training;
}

TEST(BetweenNodesTraining, OfQAdamEqualsItsReferenceToTheBit) {
  for (const std::string& transport : WorldTransports()) {
    for (const bool error_feedback : {false, true}) {
      const std::string strategy =
          absl::StrCat("qadam:warmup_steps=", kWarmUp, error_feedback ? ",error_feedback=true" : "");
      for (const int ranks : kWorlds) {
        ExpectTrainsAs(QAdamOnNodes(strategy, ranks, transport), [&](const Floats& initial) {
          return std::make_unique<QAdamReference>(
              kWarmUp, /*lr=*/0.01, BetweenNodes(std::make_unique<GradientAllReduceReference>(ranks)),
              ByteGradBetweenNodes(ranks, initial.size(), Codec8Bit(), error_feedback), initial.size());
        });
      }
    }
  }
}

}  // namespace
}  // namespace tutti
