// What a process knows of its GPUs, and copies between their memory and that of the host; the GPUs are fakes.
#include "comm/device_parts.h"

#include <atomic>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/device_kernels.h"
#include "tests/harness/fake_cuda.h"
#include "tests/harness/fake_device.h"
#include "tutti/communicator.h"
#include "tutti/devices.h"
#include "tutti/store.h"
#include "tutti/transport.h"

namespace tutti {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(DevicePartsTest, CountsAndDescribesTheDevicesThatCommunicatorsCanUse) {
  UseFakeDevices();
  EXPECT_EQ(UsableDevices().value(), kFakeDevices);
  const absl::StatusOr<DeviceSummary> last = DescribeDevice(kFakeDevices - 1);
  ASSERT_TRUE(last.ok()) << last.status();
  EXPECT_FALSE(last->name.empty());
  for (const int device : {-1, kFakeDevices}) {
    const absl::Status status = DescribeDevice(device).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("must be in 0…7"));
  }
}

// The error of a communicator on GPU 3, whose kernels load as `convert` does.
std::string ErrorOnGpu3(decltype(kernels::DeviceKernels::convert) convert) {
  UseFakeDevices();
  DeviceParts parts = PartsOfThisProcess().value();
  kernels::DeviceKernels kernels = *parts.kernels;
  kernels.convert = convert;
  parts.kernels = &kernels;
  SetPartsOfThisProcess(&parts);
  const auto world = Communicator::Create({Identity{}, MakeMemoryStore()},
                                          MakeInprocTransport(MakeInprocHub(1), {.region_bytes = 1 << 20}).value(),
                                          {.cuda_device = 3});
  UseFakeDevices();
  return world.status().ToString();
}

// The kernels of a build have code for some GPUs and those that are newer.
TEST(DevicePartsTest, AGpuThatCannotRunTheKernelsIsNamedWhenACommunicatorIsMade) {
  EXPECT_THAT(
      ErrorOnGpu3([](kernels::Stream, DType, void*, DType, const void*, std::int64_t) {
        return absl::InternalError("no kernel image is available");
      }),
      AllOf(HasSubstr("rank 0: cuda_device 3, fake GPU 3 of compute capability 9.0, cannot run Tutti's kernels"),
            HasSubstr("no kernel image is available")));
}

TEST(DevicePartsTest, AGpuWithoutMemoryForAKernelIsNoGpuThatCannotRunIt) {
  EXPECT_EQ(ErrorOnGpu3([](kernels::Stream, DType, void*, DType, const void*, std::int64_t) {
              return absl::ResourceExhaustedError("out of memory");
            }),
            "RESOURCE_EXHAUSTED: CommunicatorOptions of rank 0: cuda_device 3: out of memory");
}

// Nothing is done on the thread's current GPU, which is that of another rank, where the rank's own cannot be used.
TEST(DevicePartsTest, AGpuOnWhichNoContextCanBeMadeIsNamed) {
  ASSERT_EQ(FakeCuda::Table().set_device(0), kCudaSuccess);
  FakeCuda::FailNext("push_device", kCudaOutOfMemory);
  EXPECT_THAT(ErrorOnGpu3([](kernels::Stream, DType, void*, DType, const void*, std::int64_t) {
                ADD_FAILURE() << "a kernel was loaded";
                return absl::OkStatus();
              }),
              HasSubstr("RESOURCE_EXHAUSTED: CommunicatorOptions of rank 0: cuda_device 3: "));
}

// A copy begins after what is on the default stream of the GPU that has the memory, which is not the thread's current
// one. The kernel there does not begin before the copy is enqueued.
TEST(DevicePartsTest, CopiesInTheOrderOfTheDefaultStreamOfTheMemory) {
  UseFakeDevices();
  constexpr int kDevice = 3;
  const CudaRuntime& cuda = FakeCuda::Table();
  const FakeMemory memory(kDevice, 4);
  std::atomic<bool> may_begin = false;
  ASSERT_EQ(cuda.set_device(kDevice), kCudaSuccess);
  ASSERT_EQ(FakeCuda::Launch(nullptr,
                             [&] {
                               while (!may_begin.load()) std::this_thread::yield();
                               memory.floats()[0] = 7;
                             }),
            kCudaSuccess);
  ASSERT_EQ(cuda.set_device(0), kCudaSuccess);
  const FakeCudaCounts before = FakeCuda::Counts();
  std::thread releases([&] {
    while ((FakeCuda::Counts() - before).synchronizations == 0) std::this_thread::yield();
    may_begin = true;
  });
  float here = 0;
  EXPECT_EQ(CopyMemory(&here, memory.data(), 4), absl::OkStatus());
  releases.join();
  EXPECT_EQ(here, 7);
  int current = -1;
  EXPECT_EQ(cuda.current_device(&current), kCudaSuccess);
  EXPECT_EQ(current, 0);
}

}  // namespace
}  // namespace tutti
