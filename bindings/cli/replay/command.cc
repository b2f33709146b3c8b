// tutti replay STRATEGY --gradients g.npy --weights w0.npy --lr 0.1 --out w.npy: trains on given gradients, so that a
// user can compare an algorithm with a program that computes the same.
#include "bindings/cli/command.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "bindings/cli/flags.h"
#include "bindings/cli/local_ranks.h"
#include "bindings/cli/replay/npy.h"
#include "bindings/cli/replay/optimizer.h"
#include "bindings/cli/replay/rank.h"
#include "bindings/cli/write_file.h"
#include "tutti/algorithm.h"

namespace tutti::cli {
namespace {

// A learning rate that fits into float32, in which the optimizers compute.
absl::StatusOr<double> ParseLearningRate(absl::string_view text) {
  constexpr double kMax = std::numeric_limits<float>::max();
  double lr = 0;
  if (absl::SimpleAtod(text, &lr) && lr >= 0 && lr <= kMax) return lr;
  return absl::InvalidArgumentError(
      absl::StrCat("'", text, "' is no learning rate; needed is a number from 0 to ", kMax, ", as 0.1"));
}

// Checks before the training that the output can be written, and overwrites no input.
absl::Status CheckOutFile(const ReplayOptions& options) {
  const std::pair<const char*, const std::string*> inputs[] = {{"--gradients", &options.gradients_file},
                                                               {"--weights", &options.weights_file}};
  for (const auto& [flag, file] : inputs) {
    std::error_code different;
    if (std::filesystem::equivalent(options.out_file, *file, different)) {
      return absl::InvalidArgumentError(absl::StrCat("--out ", options.out_file, " is the file of ", flag,
                                                     ", which would be overwritten: name another file"));
    }
  }
  return CheckWritable(options.out_file);
}

absl::StatusOr<int> Replay(ReplayOptions options) {
  const absl::StatusOr<Strategy> strategy = ParseStrategy(options.strategy);
  if (!strategy.ok()) return strategy.status();
  absl::StatusOr<std::string> optimizer = ChooseReplayOptimizer(*strategy, options.optimizer);
  if (!optimizer.ok()) return optimizer.status();
  options.optimizer = *std::move(optimizer);
  const absl::StatusOr<Array> gradients = ReadNpy(options.gradients_file);
  if (!gradients.ok()) return gradients.status();
  const absl::StatusOr<Array> weights = ReadNpy(options.weights_file);
  if (!weights.ok()) return weights.status();
  const absl::StatusOr<ReplayShape> shape = ShapeOfReplay(options, *gradients, *weights);
  if (!shape.ok()) return shape.status();

  if (absl::Status valid = CheckOutFile(options); !valid.ok()) return valid;

  setenv("TUTTI_TRANSPORT", options.transport.c_str(), 1);
  Array result{.shape = gradients->shape, .values = std::vector<float>(gradients->values.size())};
  const auto defaults = [](Rank) { return CommunicatorOptions(); };
  const absl::Status replayed =
      RunLocalRanks(shape->ranks, options.transport, defaults, [&](Communicator& communicator) {
        return ReplayRank(communicator, options, *shape, *gradients, *weights, result);
      });
  if (!replayed.ok()) return replayed;
  if (absl::Status written = WriteNpy(options.out_file, result); !written.ok()) return written;
  const std::string line = absl::StrCat(options.strategy, ": ", shape->steps, " steps of ", shape->ranks, " ranks, ",
                                        shape->count, " weights, written to ", options.out_file, "\n");
  std::fputs(line.c_str(), stdout);
  return 0;
}

void AddFlags(CLI::App& replay, ReplayOptions& options) {
  replay.add_option("strategy", options.strategy, "A strategy name: ALGORITHM or ALGORITHM:option=value,…")->required();
  replay
      .add_option("--gradients", options.gradients_file,
                  "Gradients [steps, ranks, n] in float32; as many ranks are started")
      ->type_name("FILE.npy")
      ->required();
  replay.add_option("--weights", options.weights_file, "Weights at the start, [n] or [ranks, n], in float32")
      ->type_name("FILE.npy")
      ->required();
  AddParsed(replay, "--lr", options.lr, ParseLearningRate, "NUMBER", "", "Learning rate, from 0 on")->required();
  replay.add_option("--out", options.out_file, "Receives the weights of all ranks after each step, [steps, ranks, n]")
      ->type_name("FILE.npy")
      ->required();
  replay
      .add_option("--optimizer", options.optimizer,
                  "What takes the steps: sgd or adam, as torch.optim has them; qadam with that strategy, and no other")
      ->check(OneOf(ReplayOptimizerNames()))
      ->default_str("sgd, or qadam with that strategy");
  replay.add_option("--transport", options.transport, "What moves the bytes between the ranks, which are threads")
      ->check(OneOf({"inproc", "ucx"}))
      ->capture_default_str();
}

}  // namespace

void AddReplay(CLI::App& app, Invocation& invocation) {
  CLI::App* replay = app.add_subcommand("replay", "Train on given gradients with a strategy, and keep every step");
  auto options = std::make_shared<ReplayOptions>();
  AddFlags(*replay, *options);
  replay->footer(
      "Example: tutti replay bytegrad --gradients g.npy --weights w0.npy --lr 0.1 --out w.npy, with the files that\n"
      "numpy.save('g.npy', gradients.astype('<f4')) writes: docs/replay.md.");
  replay->callback([options, &invocation] { invocation.action = [options] { return Replay(*options); }; });
}

}  // namespace tutti::cli
