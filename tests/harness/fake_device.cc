#include "tests/harness/fake_device.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "comm/device_parts.h"
#include "engine/device_compute.h"
#include "tests/harness/fake_cuda.h"
#include "tests/harness/fake_nccl.h"
#include "transports/nccl/maker.h"

namespace tutti {
namespace {

using Perform = absl::Status (*)(const kernels::DeviceKernels&, absl::Span<const DeviceStep>, CUstream_st*);

// A kernel for each kind of step, types and codec.
std::string KernelOf(const DeviceStep& step) {
  const Instruction& i = *step.instruction;
  const bool codes = i.kind == StepKind::kEncode || i.kind == StepKind::kDecode;
  return absl::StrCat(Name(i.kind), " ", Name(i.dst_type), " ", Name(i.src_type), " ",
                      codes ? step.program->plan.codecs[i.codec].codec->name : "");
}

// One launch for all steps.
template <Perform kPerform>
absl::Status Enqueue(absl::Span<const DeviceStep> steps, CUstream_st* stream) {
  for (const DeviceStep& step : steps) {
    const CudaError error = FakeCuda::LoadKernel(KernelOf(step));
    if (error != kCudaSuccess) return CudaStatus(FakeCuda::Table(), error, "a kernel");
  }
  if (stream == kernels::LoadingStream()) return absl::OkStatus();
  struct Kept {
    DeviceStep step;
    std::vector<void*> dsts;
    std::vector<const void*> srcs;
  };
  std::vector<Kept> kept;
  for (const DeviceStep& step : steps) {
    kept.push_back({step, std::vector<void*>(step.dsts.begin(), step.dsts.end()),
                    std::vector<const void*>(step.srcs.begin(), step.srcs.end())});
  }
  const CudaError error = FakeCuda::Launch(stream, [kept = std::move(kept)] {
    std::vector<DeviceStep> performed;
    for (const Kept& one : kept) {
      performed.push_back(one.step);
      performed.back().dsts = one.dsts;
      performed.back().srcs = one.srcs;
    }
    EXPECT_EQ(kPerform(kernels::HostKernels(), performed, nullptr), absl::OkStatus());
  });
  return error == kCudaSuccess ? absl::OkStatus() : CudaStatus(FakeCuda::Table(), error, "a kernel");
}

// The functions of `HostKernels` that the layer above plans uses, each as one launch.
absl::Status Launch(CUstream_st* stream, std::function<absl::Status(const kernels::DeviceKernels&)> kernel) {
  if (stream == kernels::LoadingStream()) return absl::OkStatus();
  const CudaError error = FakeCuda::Launch(
      stream, [kernel = std::move(kernel)] { EXPECT_EQ(kernel(kernels::HostKernels()), absl::OkStatus()); });
  return error == kCudaSuccess ? absl::OkStatus() : CudaStatus(FakeCuda::Table(), error, "a kernel");
}

const kernels::DeviceKernels& EnqueuedKernels() {
  using kernels::AdamFactors;
  using kernels::DeviceKernels;
  using kernels::Stream;
  static const DeviceKernels table = [] {
    DeviceKernels enqueued = {};
    enqueued.convert = [](Stream stream, DType to_type, void* to, DType from_type, const void* from,
                          std::int64_t count) {
      return Launch(stream, [=](const DeviceKernels& host) {
        return host.convert(nullptr, to_type, to, from_type, from, count);
      });
    };
    enqueued.combine = [](Stream stream, DType dtype, void* dst, absl::Span<const void* const> srcs,
                          const Coefficient* coefficients, std::int64_t count, kernels::Results results) {
      return Launch(stream, [=, terms = std::vector<const void*>(srcs.begin(), srcs.end()),
                             factors = std::vector<Coefficient>(coefficients, coefficients + srcs.size())](
                                const DeviceKernels& host) {
        return host.combine(nullptr, dtype, dst, terms, factors.data(), count, results);
      });
    };
    enqueued.blend_into_momentum = [](Stream stream, DType dtype, void* gradient, const void* weights, const float* m,
                                      std::int64_t count, const AdamFactors& factors) {
      return Launch(stream, [=](const DeviceKernels& host) {
        return host.blend_into_momentum(nullptr, dtype, gradient, weights, m, count, factors);
      });
    };
    enqueued.adam_step = [](Stream stream, DType dtype, void* weights, const void* gradient, float* m, float* v,
                            std::int64_t count, const AdamFactors& factors) {
      return Launch(stream, [=](const DeviceKernels& host) {
        return host.adam_step(nullptr, dtype, weights, gradient, m, v, count, factors);
      });
    };
    enqueued.frozen_adam_step = [](Stream stream, DType dtype, void* weights, const void* momentum, float* m,
                                   const float* v, std::int64_t count, const AdamFactors& factors) {
      return Launch(stream, [=](const DeviceKernels& host) {
        return host.frozen_adam_step(nullptr, dtype, weights, momentum, m, v, count, factors);
      });
    };
    return enqueued;
  }();
  return table;
}

}  // namespace

StreamDevice FakeDevice(int index) {
  return {.cuda = &FakeCuda::Table(),
          .index = index,
          .compute = Enqueue<ComputeOnDevice>,
          .recode = Enqueue<RecodeOnDevice>};
}

void UseFakeDevices() {
  static const nccl::NcclMaker maker(FakeNccl::Table(), FakeCuda::Table());
  static const DeviceParts parts = {.cuda = &FakeCuda::Table(),
                                    .compute = Enqueue<ComputeOnDevice>,
                                    .recode = Enqueue<RecodeOnDevice>,
                                    .kernels = &EnqueuedKernels(),
                                    .native = &maker};
  SetPartsOfThisProcess(&parts);
}

FakeMemory::FakeMemory(int device, std::int64_t bytes) {
  const CudaRuntime& cuda = FakeCuda::Table();
  EXPECT_EQ(cuda.set_device(device), kCudaSuccess);
  EXPECT_EQ(cuda.allocate(&data_, static_cast<std::size_t>(bytes > 0 ? bytes : 1)), kCudaSuccess);
}

FakeMemory::~FakeMemory() { FakeCuda::Table().free(data_); }

}  // namespace tutti
