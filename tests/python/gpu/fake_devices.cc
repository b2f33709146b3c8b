// What the extension module of the tests in this folder has beside tutti._C: the fake CUDA and NCCL, in place of those
// of torch, which for Python is a build for CUDA.
#include <memory>
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>

#include "tests/harness/fake_device.h"
#include "tests/torch/fake_gpu.h"

namespace {

// The statistics of torch's DistributedDataParallel, which would ask CUDA for the time.
struct NoTimer final : c10d::Timer {
  explicit NoTimer(c10::Device) {}
  std::optional<std::int64_t> measureDifference(Event, Event) override { return std::nullopt; }
};

}  // namespace

// Called by fake_cuda.py before the first group.
extern "C" __attribute__((visibility("default"))) void tutti_use_fake_devices() {
  tutti::UseFakeDevices();
  tutti::ReplaceOperatorsOfCuda();
  c10d::TimerRegistry()->Register(
      c10::kCUDA, [](c10::Device device) -> std::unique_ptr<c10d::Timer> { return std::make_unique<NoTimer>(device); },
      c10::REGISTRY_PREFERRED);
}
