// Memory of GPUs that communicators allocate, and copies to and from it; the GPU is a fake.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "tests/harness/fake_cuda.h"
#include "tests/harness/world.h"
#include "tutti/devices.h"

namespace tutti {
namespace {

void OnOneRank(const std::function<void(Communicator&)>& body) {
  WorldOptions options;
  options.on_devices = true;
  RunWorld(1, options, body);
}

TEST(DeviceMemoryTest, BytesGoThereAndComeBack) {
  OnOneRank([](Communicator& comm) {
    EXPECT_EQ(comm.cuda_device(), 0);
    const absl::StatusOr<Buffer> buffer = comm.Allocate(12, MemoryKind::kDevice);
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    const std::vector<float> values = {1, 2, 3};
    std::vector<float> back(3);
    ASSERT_EQ(CopyMemory(buffer->data(), values.data(), 12), absl::OkStatus());
    ASSERT_EQ(CopyMemory(back.data(), buffer->data(), 12), absl::OkStatus());
    EXPECT_EQ(back, values);
    EXPECT_EQ(CopyMemory(back.data(), buffer->data(), -1).code(), absl::StatusCode::kInvalidArgument);
  });
}

TEST(DeviceMemoryTest, MemoryIsGivenBack) {
  OnOneRank([](Communicator& comm) {
    const FakeCudaCounts before = FakeCuda::Counts();
    { const Buffer buffer = *comm.Allocate(100, MemoryKind::kDevice); }
    const FakeCudaCounts counts = FakeCuda::Counts() - before;
    EXPECT_EQ(counts.allocations, 1);
    EXPECT_EQ(counts.frees, 1);
  });
}

TEST(DeviceMemoryTest, SizesThatCannotBe) {
  OnOneRank([](Communicator& comm) {
    EXPECT_EQ(comm.Allocate(-1, MemoryKind::kDevice).status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(comm.Allocate(0, MemoryKind::kDevice)->data(), nullptr);
    FakeCuda::FailNext("allocate", 2);
    EXPECT_EQ(comm.Allocate(8, MemoryKind::kDevice).status().code(), absl::StatusCode::kResourceExhausted);
  });
}

}  // namespace
}  // namespace tutti
