// QAdamUpdate is the optimizer of the strategy `qadam` on tensors: what the optimizers of C++ (tutti::nn::QAdam) and of
// Python (tutti.torch.QAdam) have in common.
#ifndef TUTTI_TORCH_QADAM_UPDATE_H_
#define TUTTI_TORCH_QADAM_UPDATE_H_

#include <torch/torch.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "tutti/qadam.h"
#include "tutti/synchronizer.h"
#include "tutti/torch/errors.h"
#include "tutti/torch/gradient_hooks.h"
#include "tutti/torch/replicas.h"
#include "tutti/torch/streams.h"

namespace tutti::nn {

// Not thread-safe; used on the thread of backward().
class QAdamUpdate : private MomentumSource {
 public:
  // Returns the present options of all groups, which schedulers change. Called in every backward and in every step.
  using Groups = std::function<absl::StatusOr<std::vector<tutti::QAdam::Group>>()>;

  // Makes the optimizer of all parameters of `replicas`, which must outlive it; `parameters` are those of each group,
  // of which those that need no gradient are skipped. Collective. Throws c10::ValueError, on every rank, for a
  // parameter that is missing or not among those of `replicas` and for an option out of range; c10::NotImplementedError
  // for a parameter with gaps between its elements.
  QAdamUpdate(Replicas& replicas, const std::vector<std::vector<torch::Tensor>>& parameters, Groups groups);
  ~QAdamUpdate();
  QAdamUpdate(const QAdamUpdate&) = delete;
  QAdamUpdate& operator=(const QAdamUpdate&) = delete;

  // Changes the weights by the present contents of p.grad(), after the end of the last backward; leaves parameters
  // alone whose p.grad() is undefined.
  void Step();
  // Whether the warm-up is over.
  bool frozen() const { return optimizer_->frozen(); }

  // The state of the optimizer: see tutti::QAdam. SaveState throws when the state cannot be read from a GPU.
  std::string SaveState() const { return replicas_.place().SavedOrThrow(optimizer_->SaveState()); }
  void LoadState(const std::string& state) { ThrowIfError(optimizer_->LoadState(state)); }
  const std::vector<std::string>& begun_anew() const { return optimizer_->begun_anew(); }

 private:
  absl::StatusOr<int> BeginBackward() override;
  void ReplaceGradient(int i, void* stream) override { optimizer_->ReplaceGradient(i, stream); }
  absl::StatusOr<std::vector<tutti::QAdam::Weights>> FindWeights(
      const std::vector<std::vector<torch::Tensor>>& parameters) const;
  absl::Status Refresh();
  std::vector<int> TakeGradients();
  const std::vector<Trained>& trained() const { return replicas_.gradients().trained(); }
  const std::string& NameOf(std::size_t i) const { return replicas_.synchronizer().parameters()[i].name; }

  Replicas& replicas_;
  const Groups groups_;
  std::unique_ptr<tutti::QAdam> optimizer_;
};

inline QAdamUpdate::QAdamUpdate(Replicas& replicas, const std::vector<std::vector<torch::Tensor>>& parameters,
                                Groups groups)
    : replicas_(replicas), groups_(std::move(groups)) {
  Synchronizer& synchronizer = replicas_.synchronizer();
  absl::StatusOr<std::vector<tutti::QAdam::Weights>> weights = FindWeights(parameters);
  absl::StatusOr<std::vector<tutti::QAdam::Group>> options = groups_();
  ThrowIfError(synchronizer.Agree("QAdam", {}, weights.ok() ? options.status() : weights.status()));
  optimizer_ = ValueOrThrow(tutti::QAdam::Create(synchronizer, *std::move(weights), *std::move(options)));
  ThrowIfError(Refresh());
  // This object stands between synchronizer and optimizer, to see the present options and places of parameters.
  synchronizer.set_momentum_source(this);
}

// The next backward then says that there is no QAdam, and another one may be made.
inline QAdamUpdate::~QAdamUpdate() {
  Synchronizer& synchronizer = replicas_.synchronizer();
  if (synchronizer.momentum_source() == this) synchronizer.set_momentum_source(nullptr);
}

inline absl::StatusOr<std::vector<tutti::QAdam::Weights>> QAdamUpdate::FindWeights(
    const std::vector<std::vector<torch::Tensor>>& parameters) const {
  constexpr int kNone = -1;
  std::vector<tutti::QAdam::Weights> weights;
  for (const Trained& one : trained()) weights.push_back({one.parameter.data_ptr(), kNone});
  for (std::size_t g = 0; g < parameters.size(); ++g) {
    for (std::size_t p = 0; p < parameters[g].size(); ++p) {
      if (!parameters[g][p].requires_grad()) continue;
      std::size_t i = 0;
      while (i < weights.size() && !trained()[i].parameter.is_same(parameters[g][p])) ++i;
      if (i == weights.size()) {
        return absl::InvalidArgumentError(absl::StrCat("parameter ", p, " of group ", g, " of QAdam, of shape ",
                                                       ShapeOf(parameters[g][p]),
                                                       ", is none of those that the ranks exchange: leave it out"));
      }
      weights[i].group = static_cast<int>(g);
    }
  }
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (weights[i].group == kNone) {
      return absl::InvalidArgumentError(
          absl::StrCat("parameter ", NameOf(i), " is missing in QAdam, which must have all that the ranks exchange"));
    }
  }
  return weights;
}

// Passes options and places of parameters on to the optimizer: schedulers change options, and loading a module moves
// its parameters.
inline absl::Status QAdamUpdate::Refresh() {
  const absl::StatusOr<std::vector<tutti::QAdam::Group>> groups = groups_();
  if (!groups.ok()) return groups.status();
  if (groups->size() != optimizer_->groups().size()) {
    return absl::InvalidArgumentError(absl::StrCat("QAdam has ", groups->size(), " groups, was created with ",
                                                   optimizer_->groups().size(), ": create it with all of them"));
  }
  for (std::size_t g = 0; g < groups->size(); ++g) {
    if (absl::Status set = optimizer_->SetGroup(static_cast<int>(g), (*groups)[g]); !set.ok()) return set;
  }
  for (std::size_t i = 0; i < trained().size(); ++i) {
    const auto& [parameter, gradient, exchanged] = trained()[i];
    if (!gradient.defined()) continue;  // a bucket of parameters without elements has no memory
    if (parameter.sizes() != gradient.sizes() || parameter.strides() != gradient.strides() ||
        parameter.scalar_type() != gradient.scalar_type()) {
      return absl::UnimplementedError(
          absl::StrCat("parameter ", NameOf(i),
                       " has gaps between its elements, or another shape or type than when DataParallel was created"));
    }
    optimizer_->SetWeights(static_cast<int>(i), parameter.data_ptr());
  }
  return absl::OkStatus();
}

inline absl::StatusOr<int> QAdamUpdate::BeginBackward() {
  if (absl::Status fresh = Refresh(); !fresh.ok()) return fresh;
  if (frozen()) replicas_.gradients().set_exchanges_momentum();
  return optimizer_->BeginBackward();
}

// Copies p.grad() into the bucket that the optimizer reads, where a user gave p.grad() another tensor. Returns the
// parameters without a gradient, which stay as they are, as with any optimizer of torch.
inline std::vector<int> QAdamUpdate::TakeGradients() {
  std::vector<int> without;
  torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < trained().size(); ++i) {
    // A parameter without elements may have a gradient on some ranks only, on which its t must not depend.
    if (trained()[i].parameter.numel() == 0) continue;
    const torch::Tensor& grad = trained()[i].parameter.grad();
    if (!grad.defined()) {
      without.push_back(static_cast<int>(i));
    } else if (!grad.is_same(trained()[i].gradient)) {
      trained()[i].gradient.copy_(grad);
    }
  }
  return without;
}

inline void QAdamUpdate::Step() {
  const ErrorPlace& place = replicas_.place();
  place.ThrowIfError(replicas_.gradients().CheckNotAbandoned());
  place.ThrowIfError(Refresh());
  FollowStream(replicas_.synchronizer(), replicas_.device());
  place.ThrowIfError(optimizer_->Step(TakeGradients()));
  for (const Trained& one : trained()) CountWrite(one.parameter);
}

}  // namespace tutti::nn

#endif  // TUTTI_TORCH_QADAM_UPDATE_H_
