// ModuleWatch checks that a module still has the parameters that it had when it was wrapped, and finds new buffers.
#ifndef TUTTI_TORCH_MODULE_WATCH_H_
#define TUTTI_TORCH_MODULE_WATCH_H_

#include <torch/torch.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tutti/torch/parameter_facts.h"
#include "tutti/torch/tensors.h"

namespace tutti::nn {

class ModuleWatch {
 public:
  // Remembers the parameters and, with `watches_buffers`, the buffers that `module` has now. A module that a shared_ptr
  // owns may be destroyed before the ModuleWatch; any other module must outlive the ModuleWatch.
  ModuleWatch(torch::nn::Module& module, bool watches_buffers)
      : module_(module),
        owner_(module.weak_from_this()),
        is_shared_(!owner_.expired()),
        watches_buffers_(watches_buffers) {
    for (const auto& item : module.named_parameters()) {
      if (item.value().defined()) names_.push_back({item.key(), item.value().unsafeGetTensorImpl()});
    }
    remembered_ = FactsOf(Registered::ParametersOf);
    if (watches_buffers_) buffers_ = FactsOf(Registered::BuffersOf);
  }

  // OK, or an error that names a parameter that was registered, replaced, removed, unfrozen or converted since the
  // constructor. Freezing a parameter is no change. Cheap enough for every step: compares pointers and copies nothing,
  // unless something has changed.
  absl::Status Check() const {
    const std::shared_ptr<const torch::nn::Module> held = owner_.lock();
    if (is_shared_ && held == nullptr) return absl::OkStatus();
    return Hold(remembered_, Registered::ParametersOf) ? absl::OkStatus() : FindChange();
  }

  // All buffers of the module, if one has come, gone, been replaced or changed its type or shape since the last call
  // (the first time, since the constructor), and buffers are watched. Cheap enough for every step that makes buffers
  // equal.
  std::optional<std::vector<NamedTensor>> FindNewBuffers() {
    if (!watches_buffers_) return std::nullopt;
    const std::shared_ptr<const torch::nn::Module> held = owner_.lock();
    if ((is_shared_ && held == nullptr) || Hold(buffers_, Registered::BuffersOf)) return std::nullopt;
    buffers_ = FactsOf(Registered::BuffersOf);
    return Listed(module_.named_buffers());
  }

  // `tensors` as adapters list them.
  static std::vector<NamedTensor> Listed(const torch::OrderedDict<std::string, torch::Tensor>& tensors) {
    std::vector<NamedTensor> listed;
    for (const auto& item : tensors) listed.push_back({item.key(), item.value()});
    return listed;
  }

 private:
  struct Named {
    std::string name;
    const torch::TensorImpl* parameter;
  };
  // Access to a module's own tensors. Parameters are read in place; buffers are to be had only as a copy, with their
  // names, since a module hides them from classes that inherit from it, too.
  struct Registered : torch::nn::Module {
    static const torch::OrderedDict<std::string, torch::Tensor>& ParametersOf(const torch::nn::Module& module) {
      return module.*(&Registered::parameters_);
    }
    static torch::OrderedDict<std::string, torch::Tensor> BuffersOf(const torch::nn::Module& module) {
      return module.named_buffers(/*recurse=*/false);
    }
  };

  // Calls visit(tensor) for the tensors of all modules inside, always in one order, until it returns false; returns
  // whether it never did.
  template <typename TensorsOf, typename Visitor>
  bool Visit(const TensorsOf& tensors_of, const Visitor& visit) const {
    bool goes_on = true;
    const auto of_one = [&](const torch::nn::Module& module) {
      const auto& tensors = tensors_of(module);
      for (const auto& item : tensors) {
        if (goes_on && item.value().defined()) goes_on = visit(item.value());
      }
    };
    module_.apply(torch::nn::Module::ConstModuleApplyFunction(std::cref(of_one)));
    return goes_on;
  }

  template <typename TensorsOf>
  std::vector<ParameterFacts> FactsOf(const TensorsOf& tensors_of) const {
    std::vector<ParameterFacts> facts;
    Visit(tensors_of, [&](const torch::Tensor& tensor) {
      facts.emplace_back(tensor);
      return true;
    });
    return facts;
  }

  // Whether `facts` hold for the tensors of now.
  template <typename TensorsOf>
  bool Hold(const std::vector<ParameterFacts>& facts, const TensorsOf& tensors_of) const {
    std::size_t count = 0;
    const bool equal = Visit(tensors_of, [&](const torch::Tensor& tensor) {
      return count < facts.size() && facts[count++].HoldFor(tensor);
    });
    return equal && count == facts.size();
  }

  absl::Status FindChange() const {
    const auto now = module_.named_parameters();
    for (const auto& item : now) {
      const torch::Tensor& parameter = item.value();
      if (!parameter.defined()) continue;
      const auto before = std::find_if(remembered_.begin(), remembered_.end(), [&](const ParameterFacts& other) {
        return other.parameter().is_same(parameter);
      });
      if (before == remembered_.end()) return ParameterWasChanged(item.key(), "registered");
      if (const std::string change = before->Change(); !change.empty()) return ParameterWasChanged(item.key(), change);
    }
    for (const Named& named : names_) {
      const bool is_there = std::any_of(now.begin(), now.end(), [&](const auto& item) {
        return item.value().defined() && item.value().unsafeGetTensorImpl() == named.parameter;
      });
      if (!is_there) return ParameterWasChanged(named.name, "removed or replaced");
    }
    return ParameterWasChanged(names_.empty() ? "?" : names_.front().name, "registered at another place");
  }

  const torch::nn::Module& module_;
  const std::weak_ptr<const torch::nn::Module> owner_;
  const bool is_shared_;
  const bool watches_buffers_;
  std::vector<Named> names_;
  std::vector<ParameterFacts> remembered_;  // parameters, in the order of Visit
  std::vector<ParameterFacts> buffers_;     // those of the last FindNewBuffers, in the order of Visit
};

}  // namespace tutti::nn

#endif  // TUTTI_TORCH_MODULE_WATCH_H_
