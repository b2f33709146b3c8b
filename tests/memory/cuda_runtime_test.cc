#include "memory/cuda_runtime.h"

#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "memory/cuda_summary.h"
#include "tests/harness/fake_cuda.h"

namespace tutti {
namespace {

using testing::HasSubstr;

// The table of the fake whose device_count and driver_version answer as told.
template <CudaError kError, int kCount, int kDriver>
CudaRuntime Machine() {
  CudaRuntime cuda = FakeCuda::Table();
  cuda.device_count = [](int* count) {
    *count = kCount;
    return kError;
  };
  cuda.driver_version = [](int* version) {
    *version = kDriver;
    return kCudaSuccess;
  };
  return cuda;
}

void ExpectNoGpu(const CudaRuntime* cuda, absl::StatusCode code, const std::string& reason) {
  const absl::Status status = Usable(cuda).status();
  EXPECT_EQ(status.code(), code) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("no GPU"));
  EXPECT_THAT(std::string(status.message()), HasSubstr(reason));
}

TEST(CudaRuntimeTest, IsUsableWhereThereIsADevice) {
  const absl::StatusOr<const CudaRuntime*> cuda = Usable(&FakeCuda::Table());
  ASSERT_TRUE(cuda.ok()) << cuda.status();
  EXPECT_EQ(*cuda, &FakeCuda::Table());
}

TEST(CudaRuntimeTest, SaysWhyThereIsNoGpu) {
  ExpectNoGpu(nullptr, absl::StatusCode::kUnimplemented, "built without CUDA");
  const CudaRuntime without_driver = Machine<kCudaNoDriver, 0, 0>();
  ExpectNoGpu(&without_driver, absl::StatusCode::kNotFound, "no NVIDIA driver");
  const CudaRuntime old_driver = Machine<kCudaNoDriver, 0, 12040>();
  ExpectNoGpu(&old_driver, absl::StatusCode::kNotFound, "serves CUDA 12.4, and Tutti was built with CUDA 13.0");
  const CudaRuntime older_than_the_kernels = Machine<kCudaSuccess, 1, 12000>();
  ExpectNoGpu(&older_than_the_kernels, absl::StatusCode::kNotFound, "serves CUDA 12.0, and Tutti's kernels need 12.1");
  const CudaRuntime without_device = Machine<kCudaNoDevice, 0, 13000>();
  ExpectNoGpu(&without_device, absl::StatusCode::kNotFound, "CUDA_VISIBLE_DEVICES");
  const CudaRuntime empty = Machine<kCudaSuccess, 0, 13000>();
  ExpectNoGpu(&empty, absl::StatusCode::kNotFound, "finds no device");
  const CudaRuntime broken = Machine<999, 0, 13000>();
  ExpectNoGpu(&broken, absl::StatusCode::kInternal, "cudaErrorUnknown");
}

TEST(CudaRuntimeTest, StatusesHaveCudasNameOfTheError) {
  const CudaRuntime& cuda = FakeCuda::Table();
  EXPECT_TRUE(CudaStatus(cuda, kCudaSuccess, "copy").ok());
  const absl::Status memory = CudaStatus(cuda, kCudaOutOfMemory, "rank 1: 64 bytes of scratch");
  EXPECT_EQ(memory.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(memory.message()), HasSubstr("rank 1: 64 bytes of scratch: "));
  EXPECT_THAT(std::string(memory.message()), HasSubstr("cudaErrorMemoryAllocation"));
  EXPECT_EQ(CudaStatus(cuda, kCudaNoDevice, "start").code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(CudaStatus(cuda, 400, "copy").code(), absl::StatusCode::kInternal);
}

TEST(CudaRuntimeTest, SummarizesEveryDevice) {
  const CudaRuntime& cuda = FakeCuda::Table();
  ASSERT_EQ(cuda.set_device(5), kCudaSuccess);
  const absl::StatusOr<CudaSummary> summary = Summarize(cuda);
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_EQ(summary->runtime, "13.0");
  EXPECT_EQ(summary->driver, "13.0");
  ASSERT_EQ(summary->devices.size(), static_cast<std::size_t>(kFakeDevices));
  EXPECT_EQ(summary->devices[3].name, "fake GPU 3");
  EXPECT_EQ(summary->devices[3].compute_capability, "9.0");
  EXPECT_EQ(summary->devices[3].memory_bytes, std::int64_t{1} << 34);
  int current = 0;
  EXPECT_EQ(cuda.current_device(&current), kCudaSuccess);
  EXPECT_EQ(current, 5) << "the current device is what it was";
  EXPECT_EQ(cuda.set_device(0), kCudaSuccess);
  CudaRuntime broken = cuda;
  broken.memory_sizes = [](std::size_t*, std::size_t*) -> CudaError { return 999; };
  EXPECT_THAT(std::string(Summarize(broken).status().message()), HasSubstr("GPU 0: "));
}

TEST(CudaRuntimeTest, AScopeLeavesTheThreadAsItWas) {
  const CudaRuntime& cuda = FakeCuda::Table();
  std::thread([&] {
    FakeCuda::Restart();
    {
      const CudaDeviceScope scope(cuda, 3);
      EXPECT_EQ(scope.error(), kCudaSuccess);
      const CudaDeviceScope inner(cuda, 4);
      int current = -1;
      EXPECT_EQ(cuda.current_device(&current), kCudaSuccess);
      EXPECT_EQ(current, 4);
    }
    EXPECT_TRUE(FakeCuda::HasContext(3));
    EXPECT_FALSE(FakeCuda::HasContext(0)) << "the thread had no context before";
    CudaPointer found;
    EXPECT_EQ(cuda.pointer(&found, &found), kCudaSuccess);
    EXPECT_TRUE(FakeCuda::HasContext(0)) << "as of a thread that has set no device";
    EXPECT_NE(CudaDeviceScope(cuda, kFakeDevices).error(), kCudaSuccess);
  }).join();
}

// On a machine without a GPU this is an error with a reason, whether or not Tutti is built with CUDA.
TEST(CudaRuntimeTest, TheLinkedRuntimeAnswersOnEveryMachine) {
  const absl::StatusOr<const CudaRuntime*>& cuda = Cuda();
  if (cuda.ok()) {
    EXPECT_EQ(*cuda, LinkedCuda());
  } else {
    EXPECT_THAT(std::string(cuda.status().message()), HasSubstr("no GPU"));
  }
  if (const CudaRuntime* linked = LinkedCuda()) {
    int version = 0;
    EXPECT_EQ(linked->runtime_version(&version), kCudaSuccess);
    EXPECT_GE(version, 12010);
    EXPECT_STREQ(linked->error_name(kCudaNoDevice), "cudaErrorNoDevice");
  }
}

}  // namespace
}  // namespace tutti
