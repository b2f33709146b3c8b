// ModuleWatch checks that a module still has the parameters that it had when it was wrapped.
#ifndef TUTTI_TORCH_MODULE_WATCH_H_
#define TUTTI_TORCH_MODULE_WATCH_H_

#include <torch/torch.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tutti/torch/parameter_facts.h"

namespace tutti::nn {

class ModuleWatch {
 public:
  // Remembers the parameters that `module` has now. A module that a shared_ptr owns may be destroyed before the
  // ModuleWatch; any other module must outlive the ModuleWatch.
  explicit ModuleWatch(torch::nn::Module& module)
      : module_(module), owner_(module.weak_from_this()), is_shared_(!owner_.expired()) {
    for (const auto& item : module.named_parameters()) {
      if (item.value().defined()) names_.push_back({item.key(), item.value().unsafeGetTensorImpl()});
    }
    Visit([this](const torch::Tensor& parameter) {
      remembered_.emplace_back(parameter);
      return true;
    });
  }

  // OK, or an error that names a parameter that was registered, replaced, removed, unfrozen or converted since the
  // constructor. Freezing a parameter is no change. Cheap enough for every step: compares pointers and copies nothing,
  // unless something has changed.
  absl::Status Check() const {
    const std::shared_ptr<const torch::nn::Module> held = owner_.lock();
    if (is_shared_ && held == nullptr) return absl::OkStatus();
    std::size_t count = 0;
    const bool equal = Visit([&](const torch::Tensor& parameter) {
      return count < remembered_.size() && remembered_[count++].HoldFor(parameter);
    });
    return equal && count == remembered_.size() ? absl::OkStatus() : FindChange();
  }

 private:
  struct Named {
    std::string name;
    const torch::TensorImpl* parameter;
  };
  // Access to a module's own parameters: its public members return copies, of names too.
  struct Registered : torch::nn::Module {
    static const torch::OrderedDict<std::string, torch::Tensor>& In(const torch::nn::Module& module) {
      return module.*(&Registered::parameters_);
    }
  };

  // Calls visit(parameter) for the parameters of all modules inside, always in one order, until it returns false;
  // returns whether it never did.
  template <typename Visitor>
  bool Visit(const Visitor& visit) const {
    bool goes_on = true;
    const auto of_one = [&](const torch::nn::Module& module) {
      for (const auto& item : Registered::In(module)) {
        if (goes_on && item.value().defined()) goes_on = visit(item.value());
      }
    };
    module_.apply(torch::nn::Module::ConstModuleApplyFunction(std::cref(of_one)));
    return goes_on;
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
  std::vector<Named> names_;
  std::vector<ParameterFacts> remembered_;  // in the order of Visit
};

}  // namespace tutti::nn

#endif  // TUTTI_TORCH_MODULE_WATCH_H_
