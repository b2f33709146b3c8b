// Gives all ranks the state of rank 0's optimizer.
#ifndef TUTTI_TORCH_BROADCAST_OPTIMIZER_H_
#define TUTTI_TORCH_BROADCAST_OPTIMIZER_H_

#include <c10/util/Type.h>
#include <torch/torch.h>

#include <cstddef>
#include <exception>
#include <memory>
#include <sstream>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tutti/agreement.h"
#include "tutti/torch/errors.h"
#include "tutti/torch/replicas.h"

namespace tutti::nn {

// The facts that two optimizers must have in common so that one can take the state of the other.
inline AgreementFields CommonOf(const torch::optim::Optimizer& optimizer) {
  std::vector<std::size_t> sizes;
  for (const torch::optim::OptimizerParamGroup& group : optimizer.param_groups())
    sizes.push_back(group.params().size());
  return {{"class of the optimizer", c10::demangle(typeid(optimizer).name())},
          {"parameters in each group of the optimizer", absl::StrJoin(sizes, ", ")}};
}

// The fact that two optimizers have in common when one has taken the state of the other.
inline AgreementFields StateOf(torch::optim::Optimizer& optimizer) {
  return {{"parameters with a state", absl::StrCat(optimizer.state().size())}};
}

// The text of the exception that `f` throws, as the mistake of this rank; OK when `f` throws none.
template <typename F>
absl::Status MistakeOf(const F& f) {
  try {
    f();
  } catch (const c10::Error& error) {
    return absl::InvalidArgumentError(error.what_without_backtrace());
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(error.what());
  }
  return absl::OkStatus();
}

// Writes options and state of `optimizer` to `bytes`. Unimplemented for a class that leaves save() as it is in
// torch::optim::Optimizer, where it writes nothing.
inline absl::Status SaveOptimizer(const torch::optim::Optimizer& optimizer, std::string& bytes) {
  bool is_empty = false;
  absl::Status saved = MistakeOf([&] {
    std::stringstream stream;
    torch::save(optimizer, stream);
    bytes = stream.str();
    torch::serialize::InputArchive archive;
    archive.load_from(stream);
    is_empty = archive.keys().empty();
  });
  if (!saved.ok() || !is_empty) return saved;
  return absl::UnimplementedError(absl::StrCat(c10::demangle(typeid(optimizer).name()),
                                               " implements neither save() nor load() of torch::optim::Optimizer, by "
                                               "which the state of an optimizer travels"));
}

// See DataParallel::BroadcastOptimizer.
inline void BroadcastOptimizer(Replicas& replicas, torch::optim::Optimizer& optimizer) {
  Synchronizer& synchronizer = replicas.synchronizer();
  const bool sends = replicas.place().rank() == 0;
  std::string bytes;
  absl::Status mistake;
  if (sends) mistake = SaveOptimizer(optimizer, bytes);
  ThrowIfError(synchronizer.Agree("BroadcastOptimizer", CommonOf(optimizer), mistake));
  replicas.BroadcastOptimizerState(bytes);
  if (sends) return ThrowIfError(synchronizer.Agree("BroadcastOptimizer", StateOf(optimizer)));

  // torch::load would keep the state of a parameter for which it finds none.
  auto before = std::exchange(optimizer.state(), {});
  std::vector<std::unique_ptr<torch::optim::OptimizerOptions>> options;
  for (const torch::optim::OptimizerParamGroup& group : optimizer.param_groups()) {
    options.push_back(group.has_options() ? group.options().clone() : nullptr);
  }
  mistake = MistakeOf([&] {
    std::istringstream received(bytes);
    // The bytes name rank 0's GPU, which may be another one than this rank's.
    torch::load(optimizer, received, replicas.device());
  });
  absl::Status loaded = synchronizer.Agree("BroadcastOptimizer", StateOf(optimizer), mistake);
  if (loaded.ok()) return;
  optimizer.state() = std::move(before);
  for (std::size_t g = 0; g < options.size(); ++g) {
    if (options[g] != nullptr) optimizer.param_groups()[g].set_options(std::move(options[g]));
  }
  ThrowIfError(loaded);
}

}  // namespace tutti::nn

#endif  // TUTTI_TORCH_BROADCAST_OPTIMIZER_H_
