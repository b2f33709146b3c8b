// The operators of torch on the fake GPU: those that make and view tensors, copies, and, for all others, torch's
// kernels for the CPU on the same memory.
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <gtest/gtest.h>
#include <torch/library.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/harness/fake_cuda.h"
#include "tests/torch/fake_gpu.h"

namespace tutti {
namespace {

void Synchronize(at::Device device) { CurrentStream(device.index()).synchronize(); }

constexpr std::chrono::microseconds kMoment(300);
constexpr int kNone = -1;
std::atomic<int> slow_device = kNone;

void Enqueue(at::Device device, std::function<void()> work) {
  const c10::DeviceGuard guard(device);
  TORCH_CHECK(FakeCuda::Launch(HandleOf(CurrentStream(device.index())), [device, work = std::move(work)] {
                if (device.index() == slow_device) std::this_thread::sleep_for(kMoment);
                const at::AutoDispatchBelowADInplaceOrView quiet;
                try {
                  work();
                } catch (const std::exception& error) {
                  ADD_FAILURE() << "an operator on a stream: " << error.what();
                }
              }) == kCudaSuccess);
}

// A tensor of the CPU over the memory of `tensor`, which it does not keep alive, as little as a kernel on a stream
// would.
at::Tensor OnHost(const at::Tensor& tensor) {
  const c10::Storage& storage = tensor.storage();
  c10::Storage lent(c10::Storage::use_byte_size_t(), storage.nbytes(),
                    at::DataPtr(const_cast<void*>(storage.data()), at::kCPU), c10::GetDefaultCPUAllocator(),
                    /*resizable=*/true);
  at::Tensor host = at::detail::make_tensor<c10::TensorImpl>(
      std::move(lent), c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
  host.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  return host;
}

// ---- making and viewing tensors ----

at::Device DeviceOr(std::optional<at::Device> device) {
  const at::Device current = c10::impl::getDeviceGuardImpl(at::kCUDA)->getDevice();
  return device.has_value() && device->has_index() ? *device : current;
}

at::Tensor Empty(at::IntArrayRef size, std::optional<at::ScalarType> type, std::optional<at::Layout>,
                 std::optional<at::Device> device, std::optional<bool>, std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(DeviceOr(device));
  return at::detail::empty_generic(size, c10::GetAllocator(at::kCUDA), c10::DispatchKeySet(c10::DispatchKey::CUDA),
                                   c10::dtype_or_default(type), format);
}

at::Tensor EmptyStrided(at::IntArrayRef size, at::IntArrayRef stride, std::optional<at::ScalarType> type,
                        std::optional<at::Layout>, std::optional<at::Device> device, std::optional<bool>) {
  const c10::DeviceGuard guard(DeviceOr(device));
  return at::detail::empty_strided_generic(size, stride, c10::GetAllocator(at::kCUDA),
                                           c10::DispatchKeySet(c10::DispatchKey::CUDA), c10::dtype_or_default(type));
}

const at::Tensor& Resize(const at::Tensor& self, at::IntArrayRef size, std::optional<at::MemoryFormat> format) {
  const c10::DeviceGuard guard(self.device());
  Synchronize(self.device());
  return at::native::resize_(self, size, format);
}

void RecordStream(at::Tensor& self, at::Stream stream) {
  c10::impl::getDeviceGuardImpl(at::kCUDA)->recordDataPtrOnStream(self.storage().data_ptr(), stream);
}

at::Tensor& Copy(at::Tensor& self, const at::Tensor& from, bool) {
  if (self.numel() == 0 || self.is_same(from)) return self;
  if (self.is_cuda() && from.is_cuda() && self.device() == from.device()) {
    Enqueue(self.device(), [to = OnHost(self), host = OnHost(from)]() mutable { to.copy_(host); });
    return self;
  }
  if (self.is_cuda()) Synchronize(self.device());
  if (from.is_cuda()) Synchronize(from.device());
  const at::AutoDispatchBelowADInplaceOrView quiet;
  at::Tensor to = self.is_cuda() ? OnHost(self) : self;
  to.copy_(from.is_cuda() ? OnHost(from) : from);
  return self;
}

// ---- all other operators ----

// One call of an operator, whose tensors are replaced by those of the CPU and back.
class Call {
 public:
  Call(const c10::OperatorHandle& op, torch::jit::Stack& stack)
      : op_(op), stack_(stack), begin_(stack.size() - op.schema().arguments().size()) {
    for (std::size_t i = begin_; i < stack_.size(); ++i) ToHost(stack_[i]);
    if (!device_.has_value()) device_ = DeviceOr(std::nullopt);
  }

  // Whether what the operator returns is known before it has run: the tensors that it writes, which have their size.
  bool writes_only() const {
    if (!only_gpu_ || Written().empty()) return false;
    for (const c10::Argument& result : op_.schema().returns()) {
      if (result.alias_info() == nullptr) return false;
    }
    return op_.schema().name().ends_with('_') ||
           std::all_of(pairs_.begin(), pairs_.end(), [](const Pair& pair) { return pair.gpu.numel() > 0; });
  }

  void Enqueue() {
    torch::jit::Stack arguments(stack_.begin() + static_cast<std::ptrdiff_t>(begin_), stack_.end());
    const std::vector<at::IValue> written = Written();
    torch::jit::drop(stack_, arguments.size());
    stack_.insert(stack_.end(), written.begin(),
                  written.begin() + static_cast<std::ptrdiff_t>(op_.schema().returns().size()));
    std::vector<std::pair<at::Tensor, at::Tensor>> places;
    for (const Pair& pair : pairs_) places.emplace_back(pair.host, OnHost(pair.gpu));
    tutti::Enqueue(*device_, [op = op_, arguments = std::move(arguments), places = std::move(places)]() mutable {
      op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &arguments);
      // Some operators (mse_loss) give an output other memory although it has the right size.
      for (auto& [host, place] : places) {
        if (host.storage().data() != place.storage().data()) place.copy_(host);
      }
    });
    for (std::size_t i = begin_; i < stack_.size(); ++i) ToGpu(stack_[i]);
  }

  void Perform() {
    Synchronize(*device_);
    {
      const at::AutoDispatchBelowADInplaceOrView quiet;
      op_.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack_);
    }
    for (const Pair& pair : pairs_) TakeNewSize(pair);
    for (std::size_t i = begin_; i < stack_.size(); ++i) ToGpu(stack_[i]);
  }

 private:
  struct Pair {
    at::Tensor gpu;
    at::Tensor host;
    const void* data;
  };

  std::vector<at::IValue> Written() const {
    std::vector<at::IValue> written;
    const std::vector<c10::Argument>& arguments = op_.schema().arguments();
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      const c10::AliasInfo* const alias = arguments[i].alias_info();
      if (alias != nullptr && alias->isWrite()) written.push_back(stack_[begin_ + i]);
    }
    return written;
  }

  at::Tensor HostOf(const at::Tensor& tensor) {
    if (!tensor.defined()) return tensor;
    if (!tensor.is_cuda()) {
      only_gpu_ = only_gpu_ && tensor.dim() == 0;
      return tensor;
    }
    if (!device_.has_value()) device_ = tensor.device();
    for (const Pair& pair : pairs_) {
      if (pair.gpu.is_same(tensor)) return pair.host;
    }
    pairs_.push_back({tensor, OnHost(tensor), tensor.storage().data()});
    return pairs_.back().host;
  }

  void ToHost(at::IValue& value) {
    if (value.isTensor()) {
      value = HostOf(value.toTensor());
    } else if (value.isTensorList()) {
      std::vector<at::Tensor> hosts;
      for (const at::Tensor& tensor : value.toTensorVector()) hosts.push_back(HostOf(tensor));
      value = hosts;
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> hosts;
      for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
        hosts.push_back(tensor.has_value() ? std::optional(HostOf(*tensor)) : std::nullopt);
      }
      value = hosts;
    } else if (value.isDevice() && value.toDevice().is_cuda()) {
      device_ = DeviceOr(value.toDevice());
      value = at::Device(at::kCPU);
    }
  }

  at::Tensor GpuOf(const at::Tensor& host) const {
    if (!host.defined()) return host;
    for (const Pair& pair : pairs_) {
      if (pair.host.is_same(host)) return pair.gpu;
    }
    for (const Pair& pair : pairs_) {
      if (!pair.host.is_alias_of(host)) continue;
      return at::native::as_strided_tensorimpl(pair.gpu, host.sizes(), host.strides(), host.storage_offset());
    }
    at::Tensor gpu = EmptyStrided(host.sizes(), host.strides(), host.scalar_type(), at::kStrided, device_, false);
    if (gpu.numel() > 0) OnHost(gpu).copy_(host);
    return gpu;
  }

  void ToGpu(at::IValue& value) const {
    if (value.isTensor()) {
      value = GpuOf(value.toTensor());
    } else if (value.isTensorList()) {
      std::vector<at::Tensor> gpus;
      for (const at::Tensor& tensor : value.toTensorVector()) gpus.push_back(GpuOf(tensor));
      value = gpus;
    }
  }

  // An output that the operator has given another size, and perhaps other memory.
  static void TakeNewSize(const Pair& pair) {
    if (pair.host.storage().data() == pair.data && pair.host.sizes() == pair.gpu.sizes()) return;
    const c10::DeviceGuard guard(pair.gpu.device());
    at::native::resize_(pair.gpu, pair.host.sizes(), std::nullopt);
    pair.gpu.unsafeGetTensorImpl()->set_sizes_and_strides(pair.host.sizes(), pair.host.strides());
    if (pair.gpu.numel() > 0 && pair.host.storage().data() != pair.data) OnHost(pair.gpu).copy_(pair.host);
  }

  c10::OperatorHandle op_;
  torch::jit::Stack& stack_;
  const std::size_t begin_;
  std::optional<at::Device> device_;
  bool only_gpu_ = true;  // scalars aside
  std::vector<Pair> pairs_;
};

void OnFakeGpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  Call call(op, *stack);
  if (call.writes_only()) {
    call.Enqueue();
  } else {
    call.Perform();
  }
}

// The operators that make and view tensors, and copies.
void ImplementOwn(torch::Library& library) {
  library.impl("empty.memory_format", TORCH_FN(Empty));
  library.impl("empty_strided", TORCH_FN(EmptyStrided));
  library.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  library.impl("view", TORCH_FN(at::native::view));
  library.impl("view.dtype", TORCH_FN(at::native::view_dtype));
  library.impl("unfold", TORCH_FN(at::native::unfold));
  library.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  library.impl("set_.source_Storage", static_cast<at::Tensor& (*)(at::Tensor&, at::Storage)>(&at::native::set_));
  library.impl("set_.source_Storage_storage_offset", TORCH_FN(at::native::set_storage_cpu_));
  library.impl("set_.source_Tensor", TORCH_FN(at::native::set_tensor_));
  library.impl("resize_", TORCH_FN(Resize));
  library.impl("record_stream", TORCH_FN(RecordStream));
  library.impl("copy_", TORCH_FN(Copy));
}

TORCH_LIBRARY_IMPL(aten, CUDA, library) { ImplementOwn(library); }
TORCH_LIBRARY_IMPL(_, CUDA, library) { library.fallback(torch::CppFunction::makeFromBoxedFunction<&OnFakeGpu>()); }

}  // namespace

SlowGpu::SlowGpu(int device) { slow_device = device; }
SlowGpu::~SlowGpu() { slow_device = kNone; }

void ReplaceOperatorsOfCuda() {
  const std::string kind = "aten::";
  static auto& library = *new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::CUDA, __FILE__, __LINE__);
  for (const auto& op : c10::Dispatcher::singleton().getAllOpNamesForDispatchKey(c10::DispatchKey::CUDA)) {
    const std::string name = c10::toString(op);
    if (!name.starts_with(kind)) continue;
    library.impl(name.substr(kind.size()).c_str(), torch::CppFunction::makeFromBoxedFunction<&OnFakeGpu>());
  }
  ImplementOwn(library);
}

}  // namespace tutti
