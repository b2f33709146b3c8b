#include "bindings/torch/process_group/model_replicas.h"

#include "bindings/torch/process_group/interpreter_exit.h"
#include "bindings/torch/process_group/interrupt.h"
#include "tutti/torch/errors.h"
#include "tutti/torch/parameter_facts.h"

namespace tutti::dist {
namespace {

// Checks that parameters are as they were when the model was wrapped. (Python checks that the module still has them.)
class ParametersWatch {
 public:
  explicit ParametersWatch(const ModelReplicas::NamedTensors& parameters) {
    for (const auto& [name, parameter] : parameters) facts_.emplace_back(name, nn::ParameterFacts(parameter));
  }

  absl::Status operator()() const {
    for (const auto& [name, facts] : facts_) {
      if (!facts.HoldFor(facts.parameter())) return nn::ParameterWasChanged(name, facts.Change());
    }
    return absl::OkStatus();
  }

 private:
  std::vector<std::pair<std::string, nn::ParameterFacts>> facts_;
};

}  // namespace

std::shared_ptr<ModelReplicas> ModelReplicas::Create(ProcessGroupTutti& group, const NamedTensors& parameters,
                                                     const NamedTensors& buffers, const nn::ReplicasOptions& options) {
  nn::ReplicatedModel model;
  for (const auto& [name, parameter] : parameters) model.parameters.push_back({name, parameter});
  for (const auto& [name, buffer] : buffers) model.buffers.push_back({name, buffer});
  model.check = ParametersWatch(parameters);
  model.advice_when_written =
      "the steps of the optimizers that DistributedDataParallel knows: tell it of every optimizer (optimizer=, "
      "add_optimizer), and after writing weights in place call broadcast(), or load_state_dict() where every rank "
      "restores its own";
  model.advice_when_moved =
      "(.data =, to), where the strategy does not find it: create another DistributedDataParallel afterwards";
  return std::make_shared<ModelReplicas>(group.NewCommunicator(), std::move(model), options);
}

ModelReplicas::ModelReplicas(std::unique_ptr<Communicator> communicator, nn::ReplicatedModel model,
                             const nn::ReplicasOptions& options) {
  parts_->communicator = std::move(communicator);
  parts_->replicas = std::make_unique<nn::Replicas>(*parts_->communicator, std::move(model), options);
  Track(this, [parts = parts_] { parts->End(); });
}

ModelReplicas::~ModelReplicas() {
  Untrack(this);
  const WithoutInterpreterLock without_lock;
  parts_->End();
}

void ModelReplicas::Parts::End() {
  qadam.reset();
  replicas.reset();
  communicator.reset();
}

nn::Replicas& ModelReplicas::replicas() const {
  StayIfInterpreterEnds();
  TORCH_CHECK_WITH(DistBackendError, parts_->replicas != nullptr, "tutti: the interpreter ends: no more exchanges");
  return *parts_->replicas;
}

void ModelReplicas::MakeQAdam(const std::vector<std::vector<at::Tensor>>& parameters, nn::QAdamUpdate::Groups groups) {
  nn::Replicas& replicas = this->replicas();
  TORCH_CHECK_VALUE(parts_->qadam == nullptr, "tutti: the model has a QAdam already: there is one for all parameters");
  parts_->qadam = std::make_unique<nn::QAdamUpdate>(replicas, parameters, std::move(groups));
}

nn::QAdamUpdate& ModelReplicas::qadam() const {
  (void)replicas();
  TORCH_CHECK_VALUE(parts_->qadam != nullptr, "tutti: the model has no QAdam");
  return *parts_->qadam;
}

}  // namespace tutti::dist
