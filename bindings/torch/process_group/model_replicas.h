// ModelReplicas: the replicas of one model of Python, kept in step by a strategy of Tutti.
#ifndef TUTTI_TORCH_PROCESS_GROUP_MODEL_REPLICAS_H_
#define TUTTI_TORCH_PROCESS_GROUP_MODEL_REPLICAS_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bindings/torch/process_group/interpreter_exit.h"
#include "bindings/torch/process_group/process_group_tutti.h"
#include "tutti/communicator.h"
#include "tutti/torch/qadam_update.h"
#include "tutti/torch/replicas.h"

namespace tutti::dist {

// The class behind tutti.torch.DistributedDataParallel. Used by one thread at a time, without the GIL.
class ModelReplicas {
 public:
  using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

  // Collective over the ranks of `group`, which gives the model a communicator of its own: calls about the model never
  // meet other calls of the group. Overwrites the tensors by those of rank 0. Throws as ThrowIfError does.
  static std::shared_ptr<ModelReplicas> Create(ProcessGroupTutti& group, const NamedTensors& parameters,
                                               const NamedTensors& buffers, const nn::ReplicasOptions& options);
  ModelReplicas(std::unique_ptr<Communicator> communicator, nn::ReplicatedModel model,
                const nn::ReplicasOptions& options);
  // Waits, without the GIL, for the exchange that all ranks have begun last.
  ~ModelReplicas();
  ModelReplicas(const ModelReplicas&) = delete;
  ModelReplicas& operator=(const ModelReplicas&) = delete;

  // The replicas of the model, which live as long as somebody has them; throws when the interpreter ends.
  std::shared_ptr<nn::Replicas> replicas() const;
  // Replicas::NoteForward; does nothing where the model cannot be trained: once the interpreter ends, and in a forked
  // child.
  void NoteForward() const;
  // Makes the optimizer of the strategy `qadam`: see QAdamUpdate. Collective.
  void MakeQAdam(const std::vector<std::vector<at::Tensor>>& parameters, nn::QAdamUpdate::Groups groups);
  // The optimizer that MakeQAdam has made; throws ValueError before that.
  std::shared_ptr<nn::QAdamUpdate> qadam() const;

 private:
  // Each uses those above it to its end.
  struct Live {
    std::unique_ptr<Communicator> communicator;
    std::unique_ptr<nn::Replicas> replicas;
    std::unique_ptr<nn::QAdamUpdate> qadam;
  };

  std::shared_ptr<EndsWithInterpreter<Live>> live_;
};

}  // namespace tutti::dist

#endif  // TUTTI_TORCH_PROCESS_GROUP_MODEL_REPLICAS_H_
