// The real NCCL, on machines that have it and no GPU: errors come back as statuses, and nothing hangs or crashes.
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/harness/fake_cuda.h"
#include "tests/transports/nccl/nccl_world.h"

namespace tutti::nccl {
namespace {

using testing::HasSubstr;

TEST(NcclTransportWithoutGpuTest, JoiningIsAnErrorWithNcclsWords) {
  if (LinkedCuda() == nullptr) GTEST_SKIP() << "built without CUDA";
  if (Cuda().ok()) GTEST_SKIP() << "there is a GPU";
  const absl::StatusOr<Library>& nccl = LoadedLibrary();
  if (!nccl.ok()) GTEST_SKIP() << nccl.status();
  const UniqueId id = NewUniqueId(*nccl).value();
  ConnectOptions options = {.nccl = &*nccl, .cuda = LinkedCuda(), .size = 2, .id = id};
  const absl::Status without_driver = Connect(options, Later()).status();
  EXPECT_EQ(without_driver.code(), absl::StatusCode::kUnavailable) << without_driver;
  EXPECT_THAT(std::string(without_driver.message()), HasSubstr("rank 0: device 0: "));
  // NCCL has a runtime of its own: it is asked itself when Tutti's claims that there is a device.
  options.cuda = &FakeCuda::Table();
  const absl::Status refused = Connect(options, Later()).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInternal) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("rank 0: joining a communicator of 2 ranks: NCCL 2."));
}

}  // namespace
}  // namespace tutti::nccl
