#include "tests/harness/fake_device.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <utility>
#include <vector>

#include "comm/device_parts.h"
#include "engine/device_compute.h"
#include "tests/harness/fake_cuda.h"
#include "tests/harness/fake_nccl.h"
#include "transports/nccl/maker.h"

namespace tutti {
namespace {

using Perform = absl::Status (*)(const kernels::DeviceKernels&, absl::Span<const DeviceStep>, CUstream_st*);

// One launch for all steps.
template <Perform kPerform>
absl::Status Enqueue(absl::Span<const DeviceStep> steps, CUstream_st* stream) {
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
