#include "bindings/cli/replay/rank.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "bindings/cli/local_ranks.h"
#include "bindings/cli/replay/optimizer.h"
#include "tutti/algorithm.h"
#include "tutti/synchronizer.h"

namespace tutti::cli {
namespace {

// A step of training with all the calls that any strategy may need.
absl::Status ReplayStep(Synchronizer& synchronizer, ReplayOptimizer& optimizer, absl::Span<const float> given,
                        absl::Span<float> gradient) {
  if (absl::Status status = synchronizer.BeginForward(); !status.ok()) return status;
  if (absl::Status status = synchronizer.BeginBackward(); !status.ok()) return status;
  std::copy(given.begin(), given.end(), gradient.begin());
  synchronizer.MarkReady(0);
  if (absl::Status status = synchronizer.FinishBackward(); !status.ok()) return status;
  if (absl::Status status = synchronizer.BeforeStep(); !status.ok()) return status;
  if (absl::Status status = optimizer.Step(); !status.ok()) return status;
  return synchronizer.AfterStep();
}

}  // namespace

absl::StatusOr<ReplayShape> ShapeOfReplay(const ReplayOptions& options, const Array& gradients, const Array& weights) {
  if (gradients.shape.size() != 3) {
    return absl::InvalidArgumentError(absl::StrCat(options.gradients_file, " has shape ", gradients.ShapeText(),
                                                   "; needed are gradients [steps, ranks, n]"));
  }
  const std::int64_t ranks = gradients.shape[1];
  const std::int64_t count = gradients.shape[2];
  if (ranks < 1 || ranks > kMaxLocalRanks) {
    return absl::InvalidArgumentError(absl::StrCat(
        options.gradients_file, " has gradients of ", ranks, " ranks (its shape is ", gradients.ShapeText(),
        ", [steps, ranks, n]); needed are 1…", kMaxLocalRanks, ", because ranks are threads of this process"));
  }
  if (weights.shape != std::vector{count} && weights.shape != std::vector{ranks, count}) {
    return absl::InvalidArgumentError(absl::StrCat(options.weights_file, " has shape ", weights.ShapeText(), "; to ",
                                                   options.gradients_file, " belong weights of shape (", count,
                                                   ",) for all ranks, or (", ranks, ", ", count, ")"));
  }
  const absl::StatusOr<Strategy> strategy = ParseStrategy(options.strategy);
  if (!strategy.ok()) return strategy.status();
  if (strategy->algorithm->exchanges == Exchanges::kWeightDifferences) {
    const auto n = static_cast<std::size_t>(count);
    for (std::size_t i = n; i < weights.values.size(); ++i) {
      if (weights.values[i] == weights.values[i - n]) continue;
      return absl::InvalidArgumentError(absl::StrCat(options.weights_file, " has different weights for ranks ",
                                                     i / n - 1, " and ", i / n, "; ", strategy->algorithm->name,
                                                     " needs equal weights of all ranks at the start, because ranks "
                                                     "exchange only changes of weights"));
    }
  }
  return ReplayShape{gradients.shape[0], static_cast<int>(ranks), count};
}

absl::Status ReplayRank(Communicator& communicator, const ReplayOptions& options, const ReplayShape& shape,
                        const Array& gradients, const Array& weights, Array& result) {
  const auto count = static_cast<std::size_t>(shape.count);
  const auto rank = static_cast<std::size_t>(communicator.rank());
  const auto of_rank = [&](auto* values, std::size_t row) { return absl::MakeSpan(values + row * count, count); };

  const std::size_t row = weights.shape.size() == 1 ? 0 : rank;
  const absl::Span<const float> first = of_rank(weights.values.data(), row);
  std::vector<float> mine(first.begin(), first.end());
  absl::StatusOr<std::unique_ptr<Synchronizer>> synchronizer = Synchronizer::Create(
      communicator,
      {{.name = "weights", .count = shape.count, .shape = absl::StrCat(shape.count), .weights = mine.data()}},
      {.strategy = options.strategy});
  if (!synchronizer.ok()) return synchronizer.status();

  // The gradient lies in its bucket when the strategy exchanges gradients.
  const std::shared_ptr<void> view = (*synchronizer)->GradientView(0);
  std::vector<float> own(view == nullptr ? count : 0);
  const absl::Span<float> gradient(view == nullptr ? own.data() : static_cast<float*>(view.get()), count);
  const absl::StatusOr<std::unique_ptr<ReplayOptimizer>> optimizer =
      MakeReplayOptimizer(options.optimizer, options.lr, **synchronizer, gradient, absl::MakeSpan(mine));
  if (!optimizer.ok()) return optimizer.status();
  for (std::size_t step = 0; step < static_cast<std::size_t>(shape.steps); ++step) {
    const std::size_t at = step * static_cast<std::size_t>(shape.ranks) + rank;
    absl::Status stepped = ReplayStep(**synchronizer, **optimizer, of_rank(gradients.values.data(), at), gradient);
    if (!stepped.ok()) return stepped;
    std::copy(mine.begin(), mine.end(), of_rank(result.values.data(), at).begin());
  }
  return absl::OkStatus();
}

}  // namespace tutti::cli
