// ParameterFacts remembers what ranks have agreed on about a parameter. It does so for buffers, too: a "parameter" of
// its members may be one.
#ifndef TUTTI_TORCH_PARAMETER_FACTS_H_
#define TUTTI_TORCH_PARAMETER_FACTS_H_

#include <torch/torch.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace tutti::nn {

// The change of a parameter that is trained now, and was not when the module was wrapped.
inline constexpr absl::string_view kUnfrozen = "unfrozen (requires_grad)";

class ParameterFacts {
 public:
  explicit ParameterFacts(const torch::Tensor& parameter)
      : parameter_(parameter),
        sizes_(parameter.sizes().vec()),
        type_(parameter.scalar_type()),
        device_(parameter.device()),
        leaf_(parameter.is_leaf()),
        trained_(parameter.requires_grad()) {}

  // Whether `now` is the same parameter, unchanged but for being frozen, which is no change. Copies nothing.
  bool HoldFor(const torch::Tensor& now) const {
    return now.is_same(parameter_) && now.sizes() == sizes_ && now.scalar_type() == type_ && now.device() == device_ &&
           now.is_leaf() == leaf_ && now.requires_grad() <= trained_;
  }

  const torch::Tensor& parameter() const { return parameter_; }

  // What has happened to the parameter, such as "converted from Float to Half"; empty when nothing has.
  std::string Change() const {
    if (parameter_.scalar_type() != type_) {
      return absl::StrCat("converted from ", c10::toString(type_), " to ", c10::toString(parameter_.scalar_type()));
    }
    if (parameter_.device() != device_) {
      return absl::StrCat("moved from ", device_.str(), " to ", parameter_.device().str());
    }
    if (parameter_.sizes() != sizes_) return "given another shape";
    if (parameter_.is_leaf() != leaf_) {
      return "written by a computation that autograd records (write it under torch::NoGradGuard; in Python: "
             "torch.no_grad())";
    }
    return parameter_.requires_grad() && !trained_ ? std::string(kUnfrozen) : "";
  }

 private:
  torch::Tensor parameter_;
  std::vector<std::int64_t> sizes_;
  torch::ScalarType type_;
  torch::Device device_;
  bool leaf_;
  bool trained_;
};

// The error about the parameter `name`, which was changed as `how` says.
inline absl::Status ParameterWasChanged(absl::string_view name, absl::string_view how) {
  return absl::InvalidArgumentError(absl::StrCat(
      "parameter ", name, " was ", how,
      " after the module was wrapped, so the ranks do not exchange it as it is now: delete this wrapper, and "
      "wrap the module anew after every change of its parameters"));
}

}  // namespace tutti::nn

#endif  // TUTTI_TORCH_PARAMETER_FACTS_H_
