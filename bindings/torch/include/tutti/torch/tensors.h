// Facts about tensors that Tutti needs, and tensors that alias Tutti's memory.
#ifndef TUTTI_TORCH_TENSORS_H_
#define TUTTI_TORCH_TENSORS_H_

#include <torch/torch.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tutti/synchronizer.h"
#include "tutti/torch/errors.h"
#include "tutti/torch/plain.h"

namespace tutti::nn {

// The DType of elements that can have gradients, and be averaged; Unimplemented for other types.
inline absl::StatusOr<DType> DTypeOf(torch::ScalarType type) {
  switch (type) {
    case torch::kFloat32:
      return DType::kF32;
    case torch::kFloat64:
      return DType::kF64;
    case torch::kFloat16:
      return DType::kF16;
    case torch::kBFloat16:
      return DType::kBF16;
    case torch::kComplexFloat:
      return DType::kC64;
    case torch::kComplexDouble:
      return DType::kC128;
    default:
      return absl::UnimplementedError(
          absl::StrCat("gradients of ", c10::toString(type),
                       " are not supported; supported: float32, float64, float16, bfloat16, complex64, complex128"));
  }
}

// The strides of the gradient of `parameter`: those of the parameter, so that optimizers walk both alike, unless these
// leave gaps.
inline std::vector<std::int64_t> GradientStrides(const torch::Tensor& parameter) {
  if (parameter.is_non_overlapping_and_dense()) return parameter.strides().vec();
  const c10::DimVector contiguous = c10::contiguous_strides(parameter.sizes());
  return {contiguous.begin(), contiguous.end()};
}

// The device of a model with these trained parameters, all of which are there.
inline torch::Device DeviceOf(const std::vector<torch::Tensor>& parameters) {
  return parameters.empty() ? torch::Device(torch::kCPU) : parameters[0].device();
}

// Text such as "64x3x3x3", with strides when they are not the usual ones.
inline std::string ShapeOf(const torch::Tensor& parameter) {
  std::string shape = absl::StrJoin(parameter.sizes(), "x");
  if (parameter.is_contiguous() || !parameter.is_non_overlapping_and_dense()) return shape;
  return absl::StrCat(shape, " strides ", absl::StrJoin(parameter.strides(), "x"));
}

// OK where parameters of a model on `device` can be exchanged by `communicator`.
inline absl::Status CheckDevice(const Communicator& communicator, torch::Device device) {
  if (!device.is_cuda() || communicator.cuda_device() == device.index()) return absl::OkStatus();
  const std::string works_on = communicator.cuda_device().has_value()
                                   ? absl::StrCat("works on cuda:", *communicator.cuda_device())
                                   : "works on the CPU alone";
  return absl::InvalidArgumentError(absl::StrCat("the parameters of rank ", communicator.rank(), " are on ",
                                                 device.str(), ", and its communicator ", works_on,
                                                 ": give CommunicatorOptions::cuda_device the GPU of the model"));
}

// `device`: that of the model.
inline absl::StatusOr<Parameter> DescribeParameter(const std::string& name, const torch::Tensor& parameter,
                                                   torch::Device device) {
  const bool somewhere = parameter.device().is_cpu() || parameter.device().is_cuda();
  if (!somewhere || parameter.layout() != torch::kStrided) {
    return absl::UnimplementedError(c10::str("parameter ", name, " is a ", parameter.layout(), " tensor on ",
                                             parameter.device(), "; supported: dense tensors on the CPU or on a GPU"));
  }
  if (parameter.device() != device) {
    return absl::UnimplementedError(c10::str("parameter ", name, " is on ", parameter.device(), ", and another one on ",
                                             device, "; supported: models whose parameters are on one device"));
  }
  if (!parameter.is_leaf()) {
    return absl::InvalidArgumentError(
        absl::StrCat("parameter ", name,
                     " is the result of a computation and no leaf of the graph, so backward() gives it no gradient: "
                     "register a tensor that was computed under NoGradGuard, or its detach()"));
  }
  const absl::StatusOr<DType> dtype = DTypeOf(parameter.scalar_type());
  if (!dtype.ok()) {
    return absl::UnimplementedError(absl::StrCat("parameter ", name, ": ", dtype.status().message()));
  }
  return Parameter{.name = name,
                   .dtype = *dtype,
                   .count = parameter.numel(),
                   .shape = ShapeOf(parameter),
                   // A tensor with gaps between its elements cannot be exchanged as one range.
                   .weights = parameter.is_non_overlapping_and_dense() ? parameter.data_ptr() : nullptr};
}

// A tensor in `memory`, laid out as the gradient of `parameter`. The tensor is no autograd view, so it may be
// detached and zeroed in place, as zero_grad(false) does. Keeps the memory alive.
inline torch::Tensor GradientAlias(std::shared_ptr<void> memory, const torch::Tensor& parameter) {
  void* data = memory.get();
  const c10::InferenceMode trains(false);  // a tensor that is made in inference mode could not be accumulated into
  const at::AutoDispatchBelowADInplaceOrView no_view;
  return at::for_blob(data, parameter.sizes())
      .strides(GradientStrides(parameter))
      .deleter([held = std::move(memory)](void*) {})
      .options(parameter.options())
      .target_device(parameter.device())
      .make_tensor();
}

struct NamedTensor {
  std::string name;
  torch::Tensor tensor;
};

// Tensors as ranges of memory: where they lie when they are plain, otherwise in copies that WriteBack copies back.
class TensorMemory {
 public:
  explicit TensorMemory(std::vector<NamedTensor> tensors) : tensors_(std::move(tensors)) {
    for (const auto& [name, tensor] : tensors_) {
      const torch::Tensor& flat = flat_.emplace_back(Plain(tensor.detach()));
      memory_.push_back({flat.data_ptr(), static_cast<std::int64_t>(flat.nbytes()), name});
    }
  }

  const std::vector<StateMemory>& memory() const { return memory_; }

  void WriteBack() {
    torch::NoGradGuard no_grad;
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      const torch::Tensor& tensor = tensors_[i].tensor;
      if (!IsPlain(tensor)) tensor.detach().copy_(flat_[i]);
    }
  }

 private:
  std::vector<NamedTensor> tensors_;
  std::vector<torch::Tensor> flat_;
  std::vector<StateMemory> memory_;
};

// Tells torch that `tensor` was written through its address, as torch counts each change in place: backward() through
// older values is an error then. A tensor of inference mode is never part of a backward().
inline void CountWrite(const torch::Tensor& tensor) {
  if (!tensor.is_inference()) tensor.unsafeGetTensorImpl()->bump_version();
}

}  // namespace tutti::nn

#endif  // TUTTI_TORCH_TENSORS_H_
