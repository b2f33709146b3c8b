// The optimizer of the strategy `qadam`, with the interface of torch::optim::Adam:
//
//   tutti::nn::DataParallel replicas(*world, *net, {.strategy = "qadam:warmup_steps=100"});
//   tutti::nn::QAdam optimizer(replicas, net->parameters(), tutti::nn::QAdamOptions(1e-3));
//   …
//   optimizer.zero_grad();
//   loss.backward();      // averages gradients, and after the warm-up the momentum, compressed
//   optimizer.step();
//
// tutti/qadam.h says what it computes, and why.
#ifndef TUTTI_TORCH_QADAM_H_
#define TUTTI_TORCH_QADAM_H_

#include <torch/torch.h>

#include <cstring>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "tutti/qadam.h"
#include "tutti/synchronizer.h"
#include "tutti/torch/data_parallel.h"
#include "tutti/torch/errors.h"
#include "tutti/torch/gradient_hooks.h"

namespace tutti::nn {

// The options of QAdam, with the names and defaults of torch::optim::AdamOptions.
class QAdamOptions : public torch::optim::OptimizerCloneableOptions<QAdamOptions> {
 public:
  using betas_t = std::tuple<double, double>;

  QAdamOptions(double lr = 1e-3) : lr_(lr) {}  // NOLINT: implicit, like the options of torch

  TORCH_ARG(double, lr) = 1e-3;
  TORCH_ARG(betas_t, betas) = std::make_tuple(0.9, 0.999);
  TORCH_ARG(double, eps) = 1e-8;
  TORCH_ARG(double, weight_decay) = 0;

 public:
  void serialize(torch::serialize::InputArchive& archive) override {
    _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, lr);
    _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(betas_t, betas);
    _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, eps);
    _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, weight_decay);
  }
  void serialize(torch::serialize::OutputArchive& archive) const override {
    _TORCH_OPTIM_SERIALIZE_TORCH_ARG(lr);
    _TORCH_OPTIM_SERIALIZE_TORCH_ARG(betas);
    _TORCH_OPTIM_SERIALIZE_TORCH_ARG(eps);
    _TORCH_OPTIM_SERIALIZE_TORCH_ARG(weight_decay);
  }
  double get_lr() const override { return lr(); }
  void set_lr(double value) override { lr(value); }
};

// Parameter groups, learning-rate schedulers, zero_grad(), torch::save and torch::load work as with any optimizer of
// torch. After the warm-up p.grad() holds momentum between backward() and step(). So clip gradients in the warm-up
// only, zero them in every step, and run all but the last of several backward() in a step under NoSync; a backward()
// that would add a gradient to momentum is an error. step() uses the present contents of p.grad(), and leaves
// parameters alone whose p.grad() is undefined.
//
// The state (m and v) is equal on all ranks: all ranks can load what one rank has saved, or one rank can load it before
// DataParallel::BroadcastOptimizer.
class QAdam : public torch::optim::Optimizer, private MomentumSource {
 public:
  // Makes the optimizer of all parameters of `replicas`, which must outlive it; parameters that need no gradient are
  // skipped. Collective. Throws c10::ValueError, on every rank, for a parameter that is missing or not among those of
  // `replicas` and for an option out of range; c10::NotImplementedError for a parameter with gaps between its elements.
  QAdam(DataParallel& replicas, const std::vector<torch::optim::OptimizerParamGroup>& groups,
        const QAdamOptions& defaults = {});
  QAdam(DataParallel& replicas, std::vector<torch::Tensor> parameters, const QAdamOptions& defaults = {})
      : QAdam(replicas, {torch::optim::OptimizerParamGroup(std::move(parameters))}, defaults) {}
  QAdam(QAdam&&) = delete;
  QAdam& operator=(QAdam&&) = delete;

  torch::Tensor step(LossClosure closure = nullptr) override;

  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

  // Whether the warm-up is over.
  bool frozen() const { return optimizer_->frozen(); }

 private:
  absl::StatusOr<int> BeginBackward() override;
  void ReplaceGradient(int i) override { optimizer_->ReplaceGradient(i); }
  absl::StatusOr<std::vector<tutti::QAdam::Weights>> FindWeights() const;
  std::vector<tutti::QAdam::Group> Groups() const;
  absl::Status Refresh();
  std::vector<int> TakeGradients();
  const std::vector<Trained>& trained() const { return replicas_.gradients_->trained(); }

  DataParallel& replicas_;
  std::unique_ptr<tutti::QAdam> optimizer_;
};

inline QAdam::QAdam(DataParallel& replicas, const std::vector<torch::optim::OptimizerParamGroup>& groups,
                    const QAdamOptions& defaults)
    : Optimizer(groups, std::make_unique<QAdamOptions>(defaults)), replicas_(replicas) {
  Synchronizer& synchronizer = *replicas_.synchronizer_;
  absl::StatusOr<std::vector<tutti::QAdam::Weights>> weights = FindWeights();
  ThrowIfError(synchronizer.Agree({}, weights.status()));
  optimizer_ = ValueOrThrow(tutti::QAdam::Create(synchronizer, *std::move(weights), Groups()));
  ThrowIfError(Refresh());
  // This object stands between synchronizer and optimizer, to see the present options and places of parameters.
  synchronizer.set_momentum_source(this);
}

inline absl::StatusOr<std::vector<tutti::QAdam::Weights>> QAdam::FindWeights() const {
  constexpr int kNone = -1;
  std::vector<tutti::QAdam::Weights> weights;
  for (const Trained& one : trained()) weights.push_back({one.parameter.data_ptr(), kNone});
  for (std::size_t g = 0; g < param_groups_.size(); ++g) {
    const std::vector<torch::Tensor>& parameters = param_groups_[g].params();
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      if (!parameters[p].requires_grad()) continue;
      std::size_t i = 0;
      while (i < weights.size() && !trained()[i].parameter.is_same(parameters[p])) ++i;
      if (i == weights.size()) {
        return absl::InvalidArgumentError(
            absl::StrCat("parameter ", p, " of group ", g, " of QAdam is none of DataParallel's"));
      }
      weights[i].group = static_cast<int>(g);
    }
  }
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (weights[i].group == kNone) {
      return absl::InvalidArgumentError(absl::StrCat("parameter ", replicas_.synchronizer_->parameters()[i].name,
                                                     " is missing in QAdam; it must have all that DataParallel "
                                                     "synchronizes"));
    }
  }
  return weights;
}

inline std::vector<tutti::QAdam::Group> QAdam::Groups() const {
  std::vector<tutti::QAdam::Group> groups;
  for (const torch::optim::OptimizerParamGroup& group : param_groups_) {
    const auto& options = static_cast<const QAdamOptions&>(group.options());
    groups.push_back({.lr = options.lr(),
                      .beta1 = std::get<0>(options.betas()),
                      .beta2 = std::get<1>(options.betas()),
                      .eps = options.eps(),
                      .weight_decay = options.weight_decay()});
  }
  return groups;
}

// Passes on what has changed: schedulers change options, and loading a module moves its parameters.
inline absl::Status QAdam::Refresh() {
  const std::vector<tutti::QAdam::Group> groups = Groups();
  if (groups.size() != optimizer_->groups().size()) {
    return absl::InvalidArgumentError(absl::StrCat("QAdam has ", groups.size(), " groups, was created with ",
                                                   optimizer_->groups().size(), ": create it with all of them"));
  }
  for (std::size_t g = 0; g < groups.size(); ++g) {
    if (absl::Status set = optimizer_->SetGroup(static_cast<int>(g), groups[g]); !set.ok()) return set;
  }
  for (std::size_t i = 0; i < trained().size(); ++i) {
    const auto& [parameter, gradient, exchanged] = trained()[i];
    if (parameter.sizes() != gradient.sizes() || parameter.strides() != gradient.strides() ||
        parameter.scalar_type() != gradient.scalar_type()) {
      return absl::UnimplementedError(
          absl::StrCat("parameter ", replicas_.synchronizer_->parameters()[i].name,
                       " has gaps between its elements, or another shape or type than when DataParallel was created"));
    }
    optimizer_->SetWeights(static_cast<int>(i), parameter.data_ptr());
  }
  return absl::OkStatus();
}

inline absl::StatusOr<int> QAdam::BeginBackward() {
  if (absl::Status fresh = Refresh(); !fresh.ok()) return fresh;
  if (frozen()) replicas_.gradients_->set_exchanges_momentum();
  return optimizer_->BeginBackward();
}

// Copies p.grad() into the bucket that the optimizer reads, where a user gave p.grad() another tensor. Returns the
// parameters without a gradient, which stay as they are, as with any optimizer of torch.
inline std::vector<int> QAdam::TakeGradients() {
  std::vector<int> without;
  torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < trained().size(); ++i) {
    const torch::Tensor& grad = trained()[i].parameter.grad();
    if (!grad.defined()) {
      without.push_back(static_cast<int>(i));
    } else if (!grad.is_same(trained()[i].gradient)) {
      trained()[i].gradient.copy_(grad);
    }
  }
  return without;
}

inline torch::Tensor QAdam::step(LossClosure closure) {
  torch::Tensor loss;
  if (closure != nullptr) {
    const at::AutoGradMode enable_grad(true);
    loss = closure();
  }
  const ErrorPlace& place = *replicas_.place_;
  place.ThrowIfError(replicas_.gradients_->EndBackward());
  place.ThrowIfError(Refresh());
  place.ThrowIfError(optimizer_->Step(TakeGradients()));
  // Counts a write of every parameter, as torch does for each change in place: backward() through older values is an
  // error.
  for (const Trained& one : trained()) one.parameter.unsafeGetTensorImpl()->bump_version();
  return loss;
}

inline void QAdam::save(torch::serialize::OutputArchive& archive) const {
  torch::optim::serialize<torch::optim::OptimizerParamState, QAdamOptions>(archive, *this);
  const std::string state = optimizer_->SaveState();
  torch::Tensor bytes = torch::empty({static_cast<std::int64_t>(state.size())}, torch::kUInt8);
  std::memcpy(bytes.data_ptr(), state.data(), state.size());
  archive.write("qadam", bytes, /*is_buffer=*/true);
}

inline void QAdam::load(torch::serialize::InputArchive& archive) {
  torch::Tensor bytes;
  archive.read("qadam", bytes, /*is_buffer=*/true);
  const std::string state(static_cast<const char*>(bytes.const_data_ptr()), static_cast<std::size_t>(bytes.numel()));
  ThrowIfError(optimizer_->LoadState(state));
  torch::optim::serialize<torch::optim::OptimizerParamState, QAdamOptions>(archive, *this);
}

}  // namespace tutti::nn

#endif  // TUTTI_TORCH_QADAM_H_
