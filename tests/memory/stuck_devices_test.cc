#include "memory/stuck_devices.h"

#include <gtest/gtest.h>

#include <latch>

#include "memory/device_memory.h"
#include "tests/harness/fake_cuda.h"

namespace tutti {
namespace {

constexpr CudaError kExternalDevice = 911;

class StuckDevicesTest : public testing::Test {
 protected:
  // The memory that is freed when a buffer of the device goes.
  std::int64_t FreesOfABuffer(int device) const {
    const FakeCudaCounts before = FakeCuda::Counts();
    { const Buffer buffer = AllocateOnDevice(cuda_, device, 8).value(); }
    return (FakeCuda::Counts() - before).frees;
  }

  // A stream of the current device, with work that ends when `ends` does.
  CUstream_st* StreamWithWork(std::latch& ends) const {
    CUstream_st* stream = nullptr;
    EXPECT_EQ(cuda_.create_stream(&stream), kCudaSuccess);
    EXPECT_EQ(FakeCuda::Launch(stream, [&ends] { ends.wait(); }), kCudaSuccess);
    return stream;
  }

  const CudaRuntime& cuda_ = FakeCuda::Table();
};

TEST_F(StuckDevicesTest, MemoryIsLeftBehindUntilTheWorkHasEnded) {
  constexpr int kDevice = 6;
  const CudaDeviceScope scope(cuda_, kDevice);
  std::latch ends(1);
  CUstream_st* const stream = StreamWithWork(ends);
  EXPECT_FALSE(HasEnded(cuda_, kDevice, stream));
  GiveUpStream(kDevice, stream);
  EXPECT_TRUE(IsStuck(cuda_, kDevice));
  EXPECT_FALSE(IsStuck(cuda_, kDevice - 1));
  EXPECT_EQ(FreesOfABuffer(kDevice), 0);
  EXPECT_EQ(FreesOfABuffer(kDevice - 1), 1);
  ends.count_down();
  ASSERT_EQ(cuda_.synchronize_stream(stream), kCudaSuccess);
  EXPECT_FALSE(IsStuck(cuda_, kDevice));
  EXPECT_EQ(FreesOfABuffer(kDevice), 1);
}

TEST_F(StuckDevicesTest, ADeviceThatHasFailedHasEndedItsWork) {
  constexpr int kDevice = 7;
  const CudaDeviceScope scope(cuda_, kDevice);
  std::latch ends(1);
  CUstream_st* const stream = StreamWithWork(ends);
  FakeCuda::Break(kDevice, kExternalDevice);
  EXPECT_TRUE(HasEnded(cuda_, kDevice, stream));
  FakeCuda::Break(kDevice, 999);
  EXPECT_FALSE(HasEnded(cuda_, kDevice, stream)) << "an error that says nothing of the work";
  FakeCuda::Break(kDevice, kCudaSuccess);
  ends.count_down();
  ASSERT_EQ(cuda_.synchronize_stream(stream), kCudaSuccess);
  EXPECT_EQ(cuda_.destroy_stream(stream), kCudaSuccess);
}

}  // namespace
}  // namespace tutti
