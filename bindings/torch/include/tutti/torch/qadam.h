// The optimizer of the strategy `qadam`, with the interface of torch::optim::Adam:
//
//   tutti::nn::DataParallel replicas(*world, *net, {.strategy = "qadam:warmup_steps=100"});
//   tutti::nn::QAdam optimizer(replicas, net->parameters(), tutti::nn::QAdamOptions(1e-3));
//   …
//   optimizer.zero_grad();
//   loss.backward();      // averages gradients, and after the warm-up the momentum, compressed
//   optimizer.step();     // also makes the buffers equal, as replicas.Step(optimizer) does
//
// tutti/qadam.h says what the optimizer computes, and why.
#ifndef TUTTI_TORCH_QADAM_H_
#define TUTTI_TORCH_QADAM_H_

#include <c10/util/ScopeExit.h>
#include <torch/torch.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tutti/qadam.h"
#include "tutti/torch/data_parallel.h"
#include "tutti/torch/qadam_update.h"

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
// only, call zero_grad() in every step, and run all but the last of several backward() in a step under NoSync; a
// backward() that would add a gradient to momentum is an error. step() uses the present contents of p.grad(), and
// leaves parameters alone whose p.grad() is undefined. Called by itself, step() is DataParallel::Step of this
// optimizer: all ranks call it, it makes the buffers equal, and gradients that are this rank's alone are an error.
//
// The state (m and v) is equal on all ranks: all ranks can load the state that one rank has saved, or one rank loads
// the state before DataParallel::BroadcastOptimizer.
class QAdam : public torch::optim::Optimizer {
 public:
  // Makes the optimizer of all parameters of `replicas`, which must outlive it; parameters that need no gradient are
  // skipped. Collective. Throws as QAdamUpdate does.
  QAdam(DataParallel& replicas, const std::vector<torch::optim::OptimizerParamGroup>& groups,
        const QAdamOptions& defaults = {});
  QAdam(DataParallel& replicas, std::vector<torch::Tensor> parameters, const QAdamOptions& defaults = {})
      : QAdam(replicas, {torch::optim::OptimizerParamGroup(std::move(parameters))}, defaults) {}
  QAdam(QAdam&&) = delete;
  QAdam& operator=(QAdam&&) = delete;

  torch::Tensor step(LossClosure closure = nullptr) override;

  void save(torch::serialize::OutputArchive& archive) const override;
  // Loads what save() wrote, of an optimizer with as many parameters in each group, frozen ones included. Throws where
  // groups or state do not fit; nothing is changed then.
  void load(torch::serialize::InputArchive& archive) override;

  // The state alone, without groups: what save() writes beside them, and what tutti.torch.QAdam has in its
  // state_dict().
  std::string SaveState() const { return update_->SaveState(); }
  void LoadState(const std::string& state) { update_->LoadState(state); }
  // The names of the parameters that the state loaded last had not: see tutti::QAdam.
  const std::vector<std::string>& begun_anew() const { return update_->begun_anew(); }

  // Whether the warm-up is over.
  bool frozen() const { return update_->frozen(); }

 private:
  std::vector<tutti::QAdam::Group> Groups() const;

  DataParallel& replicas_;
  std::optional<QAdamUpdate> update_;
};

inline QAdam::QAdam(DataParallel& replicas, const std::vector<torch::optim::OptimizerParamGroup>& groups,
                    const QAdamOptions& defaults)
    : Optimizer(groups, std::make_unique<QAdamOptions>(defaults)), replicas_(replicas) {
  // torch 2.15 merges the options of groups with the defaults, but only those of its own optimizers: those of others
  // get lost.
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (groups[i].has_options()) param_groups_[i].set_options(groups[i].options().clone());
  }
  std::vector<std::vector<torch::Tensor>> parameters;
  for (const torch::optim::OptimizerParamGroup& group : param_groups_) parameters.push_back(group.params());
  update_.emplace(replicas.replicas_, parameters, [this] { return Groups(); });
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

inline torch::Tensor QAdam::step(LossClosure closure) {
  torch::Tensor loss;
  if (closure != nullptr) {
    const at::AutoGradMode enable_grad(true);
    loss = closure();
  }
  if (replicas_.replicas_.updating()) {  // inside replicas.Step
    update_->Step();
  } else {
    replicas_.Update([this] { update_->Step(); }, /*uses_gradients=*/true, reinterpret_cast<std::uintptr_t>(this));
  }
  return loss;
}

inline void QAdam::save(torch::serialize::OutputArchive& archive) const {
  torch::optim::serialize<torch::optim::OptimizerParamState, QAdamOptions>(archive, *this);
  const std::string state = SaveState();
  torch::Tensor bytes = torch::empty({static_cast<std::int64_t>(state.size())}, torch::kUInt8);
  std::memcpy(bytes.data_ptr(), state.data(), state.size());
  archive.write("qadam", bytes, /*is_buffer=*/true);
}

inline void QAdam::load(torch::serialize::InputArchive& archive) {
  torch::Tensor bytes;
  archive.read("qadam", bytes, /*is_buffer=*/true);
  bytes = bytes.cpu();  // torch::load may have been told to load all tensors onto a GPU
  const std::string state(static_cast<const char*>(bytes.const_data_ptr()), static_cast<std::size_t>(bytes.numel()));
  std::vector<std::unique_ptr<torch::optim::OptimizerOptions>> before;
  for (const torch::optim::OptimizerParamGroup& group : param_groups_) before.push_back(group.options().clone());
  auto failed = c10::make_scope_exit([&] {
    for (std::size_t i = 0; i < before.size(); ++i) param_groups_[i].set_options(std::move(before[i]));
  });
  torch::optim::serialize<torch::optim::OptimizerParamState, QAdamOptions>(archive, *this);
  LoadState(state);
  failed.release();
}

}  // namespace tutti::nn

#endif  // TUTTI_TORCH_QADAM_H_
