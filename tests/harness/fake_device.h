// A StreamDevice over host memory: the fake CUDA, whose launches carry out steps by the functions that are the kernels
// of GPUs (kernels/device_kernels.h).
#ifndef TUTTI_TESTS_HARNESS_FAKE_DEVICE_H_
#define TUTTI_TESTS_HARNESS_FAKE_DEVICE_H_

#include <cstdint>

#include "engine/stream_device.h"

namespace tutti {

StreamDevice FakeDevice(int index);
// Lets communicators of this process take the fake CUDA and NCCL for the software of its GPUs.
void UseFakeDevices();

// Memory of a device, which the test reads and writes while no stream uses it.
class FakeMemory {
 public:
  FakeMemory(int device, std::int64_t bytes);
  ~FakeMemory();
  FakeMemory(const FakeMemory&) = delete;
  FakeMemory& operator=(const FakeMemory&) = delete;

  std::byte* data() const { return static_cast<std::byte*>(data_); }
  float* floats() const { return static_cast<float*>(data_); }

 private:
  void* data_ = nullptr;
};

}  // namespace tutti

#endif  // TUTTI_TESTS_HARNESS_FAKE_DEVICE_H_
