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

// Lives while a thread is in backward(): keeps the model, whose hooks the thread calls, and where the interpreter ends
// meanwhile, the thread does not come back from backward().
class DuringBackward {
 public:
  explicit DuringBackward(std::shared_ptr<void> model) : model_(std::move(model)) {}
  ~DuringBackward() { StayIfInterpreterEnds(); }
  DuringBackward(const DuringBackward&) = delete;
  DuringBackward& operator=(const DuringBackward&) = delete;

 private:
  const std::shared_ptr<void> model_;
};

// The device of the first parameter that is trained; the replicas refuse models whose parameters are elsewhere, too.
at::Device DeviceOf(const ModelReplicas::NamedTensors& parameters) {
  for (const auto& [name, parameter] : parameters) {
    if (parameter.requires_grad()) return parameter.device();
  }
  return at::kCPU;
}

}  // namespace

std::shared_ptr<ModelReplicas> ModelReplicas::Create(ProcessGroupTutti& group, const NamedTensors& parameters,
                                                     const NamedTensors& buffers, const nn::ReplicasOptions& options) {
  nn::ReplicatedModel model;
  for (const auto& [name, parameter] : parameters) model.parameters.push_back({name, parameter});
  for (const auto& [name, buffer] : buffers) model.buffers.push_back({name, buffer});
  model.check = ParametersWatch(parameters);
  model.advice_when_written =
      "the steps of the optimizers that DistributedDataParallel knows: tell it of every optimizer (optimizer=, "
      "add_optimizer), and after writing weights in place call broadcast() (in Fabric: "
      "fabric.strategy.wrapper_of(model).broadcast()), or load_state_dict() where every rank restores its own";
  model.advice_when_moved =
      "(.data =, to), where the strategy does not find it: drop this DistributedDataParallel and create another one "
      "afterwards";
  return std::make_shared<ModelReplicas>(group.NewCommunicator(DeviceOf(parameters)), std::move(model), options);
}

ModelReplicas::ModelReplicas(std::unique_ptr<Communicator> communicator, nn::ReplicatedModel model,
                             const nn::ReplicasOptions& options) {
  auto live = std::make_shared<Live>();
  live->communicator = std::move(communicator);
  model.keep = [model = std::weak_ptr<Live>(live)] { return std::make_shared<DuringBackward>(model.lock()); };
  live->replicas = std::make_unique<nn::Replicas>(*live->communicator, std::move(model), options);
  live_ = std::make_shared<EndsWithInterpreter<Live>>(std::move(live), "model");
  Track(this, live_);
}

ModelReplicas::~ModelReplicas() {
  Untrack(this);
  const WithoutInterpreterLock without_lock;
  live_->End();
  RaiseInterruptSoon();
}

std::shared_ptr<nn::Replicas> ModelReplicas::replicas() const {
  const std::shared_ptr<Live> live = live_->Get();
  return {live, live->replicas.get()};
}

void ModelReplicas::NoteForward() const {
  if (const std::shared_ptr<Live> live = live_->Peek()) live->replicas->NoteForward();
}

void ModelReplicas::MakeQAdam(const std::vector<std::vector<at::Tensor>>& parameters, nn::QAdamUpdate::Groups groups) {
  const std::shared_ptr<Live> live = live_->Get();
  TORCH_CHECK_VALUE(live->qadam == nullptr, "tutti: the model has a QAdam already: there is one for all parameters");
  live->qadam = std::make_unique<nn::QAdamUpdate>(*live->replicas, parameters, std::move(groups));
}

std::shared_ptr<nn::QAdamUpdate> ModelReplicas::qadam() const {
  const std::shared_ptr<Live> live = live_->Get();
  TORCH_CHECK_VALUE(live->qadam != nullptr, "tutti: the model has no QAdam");
  return {live, live->qadam.get()};
}

}  // namespace tutti::dist
