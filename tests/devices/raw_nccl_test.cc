// What raw NCCL does when its peers or its GPU do not answer. Calls that end well: bench_on_devices_test.cc.
#include "bindings/cli/bench/nccl/raw_nccl.h"

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/harness/fake_cuda.h"
#include "tests/harness/fake_device.h"
#include "tests/harness/fake_nccl.h"
#include "tests/harness/world.h"

namespace tutti::cli {
namespace {

using ::testing::HasSubstr;

// What waits, waits for this.
std::atomic<bool> released = false;

// Threads that are left behind may use a table after its test has ended.
nccl::Library& NewTable() {
  static std::vector<std::unique_ptr<nccl::Library>>& kept = *new std::vector<std::unique_ptr<nccl::Library>>;
  kept.push_back(std::make_unique<nccl::Library>(FakeNccl::Table()));
  return *kept.back();
}

void AwaitRelease() {
  while (!released.load()) std::this_thread::yield();
}

class RawNcclTest : public testing::Test {
 protected:
  RawNcclTest() { released = false; }
  ~RawNcclTest() override { released = true; }

  // Connects a world of one rank over library_, and enqueues an all_reduce.
  void Run(absl::Duration timeout, const std::function<void(absl::StatusOr<std::unique_ptr<RawNccl>>&)>& body) {
    WorldOptions options;
    options.on_devices = true;
    RunWorld(1, options, [&](Communicator& communicator) {
      const FakeMemory memory(0, 4);
      absl::StatusOr<std::unique_ptr<RawNccl>> nccl =
          RawNccl::Connect({.nccl = &library_, .cuda = &FakeCuda::Table()}, communicator, timeout);
      const NativeCall call = {.count = 1, .src = memory.data(), .dst = memory.data()};
      if (nccl.ok()) {
        EXPECT_EQ((*nccl)->Enqueue({&call, 1}), absl::OkStatus());
      }
      body(nccl);
      released = true;
    });
  }

  // All_reduces end when they are released.
  void HoldUpAllReduces() {
    library_.all_reduce = [](const void*, void*, std::size_t, nccl::DataType, nccl::RedOp, nccl::Comm,
                             CUstream_st* stream) {
      return FakeCuda::Launch(stream, AwaitRelease) == kCudaSuccess ? nccl::Result::kSuccess
                                                                    : nccl::Result::kUnhandledCudaError;
    };
  }

  nccl::Library& library_ = NewTable();
};

TEST_F(RawNcclTest, ConnectsUntilTheTimeoutAndNoLonger) {
  library_.comm_init_rank_config = [](nccl::Comm*, int, nccl::UniqueId, int, nccl::Config*) {
    AwaitRelease();
    return nccl::Result::kSystemError;
  };
  Run(absl::Milliseconds(1), [](const auto& nccl) {
    EXPECT_EQ(nccl.status().code(), absl::StatusCode::kDeadlineExceeded) << nccl.status();
    EXPECT_THAT(std::string(nccl.status().message()), HasSubstr("rank 0: raw NCCL has not connected to all ranks"));
  });
}

TEST_F(RawNcclTest, TellsWhyItCannotConnect) {
  library_.comm_init_rank_config = [](nccl::Comm*, int, nccl::UniqueId, int, nccl::Config*) {
    return nccl::Result::kInvalidUsage;
  };
  Run(absl::Seconds(60), [](const auto& nccl) {
    EXPECT_FALSE(nccl.ok());
    EXPECT_THAT(std::string(nccl.status().message()), HasSubstr("raw NCCL: joining a communicator"));
  });
}

TEST_F(RawNcclTest, WaitsUntilTheTimeoutAndNoLonger) {
  HoldUpAllReduces();
  Run(absl::Seconds(60), [](const auto& nccl) {
    ASSERT_TRUE(nccl.ok()) << nccl.status();
    const absl::Status waited = (*nccl)->Wait(absl::Milliseconds(1));
    EXPECT_EQ(waited.code(), absl::StatusCode::kDeadlineExceeded) << waited;
    EXPECT_THAT(std::string(waited.message()), HasSubstr("rank 0: what raw NCCL has enqueued has not ended"));
  });
  EXPECT_EQ(FakeNccl::LivingCommunicators(), 0);
}

TEST_F(RawNcclTest, FindsErrorsWhileItWaits) {
  HoldUpAllReduces();
  library_.comm_get_async_error = [](nccl::Comm, nccl::Result* error) {
    *error = nccl::Result::kRemoteError;
    return nccl::Result::kSuccess;
  };
  Run(absl::Seconds(60), [](const auto& nccl) {
    ASSERT_TRUE(nccl.ok()) << nccl.status();
    const absl::Status waited = (*nccl)->Wait(absl::Seconds(60));
    EXPECT_EQ(waited.code(), absl::StatusCode::kUnavailable) << waited;
    EXPECT_THAT(std::string(waited.message()), HasSubstr("raw NCCL: what was enqueued"));
  });
}

}  // namespace
}  // namespace tutti::cli
