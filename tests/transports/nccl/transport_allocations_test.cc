// Enqueueing a group of a kind that was made before allocates nothing, beyond what NCCL itself does.
#include <gtest/gtest.h>

#include <thread>

#include "tests/harness/count_allocations.h"
#include "tests/harness/fake_cuda.h"
#include "transports/nccl/transport.h"

namespace tutti::nccl {
namespace {

// An NCCL that does nothing and is always ready.
Library Idle() {
  Library nccl;
  nccl.group_start = [] { return Result::kSuccess; };
  nccl.group_end = [] { return Result::kInProgress; };
  nccl.all_reduce = [](const void*, void*, std::size_t, DataType, RedOp, Comm, CUstream_st*) {
    return Result::kSuccess;
  };
  nccl.red_op_create_pre_mul_sum = [](RedOp* op, void*, DataType, ScalarResidence, Comm) {
    *op = RedOp::kFirstCreated;
    return Result::kSuccess;
  };
  nccl.red_op_destroy = [](RedOp, Comm) { return Result::kSuccess; };
  nccl.comm_get_async_error = [](Comm, Result* error) {
    *error = Result::kSuccess;
    return Result::kSuccess;
  };
  nccl.comm_abort = [](Comm) { return Result::kSuccess; };
  return nccl;
}

TEST(NcclTransportAllocationsTest, EnqueueingAllocatesNothing) {
  const Library nccl = Idle();
  int handle = 0;
  NcclTransport native(nccl, FakeCuda::Table(), 0, 0, 2, reinterpret_cast<Comm>(&handle));
  float data = 0;
  const NativeCall calls[] = {{.count = 1, .src = &data, .dst = &data},
                              {.op = ReduceOp::kPremulSum, .count = 1, .factor = 0.5, .src = &data, .dst = &data}};
  for (int i = 0; i < 2; ++i) {  // the fake CUDA makes its default stream in the second call
    EXPECT_TRUE(native.Enqueue(calls, nullptr).ok());
    while (!*native.Ready()) std::this_thread::yield();
  }
  const std::int64_t before = allocations;
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(native.Enqueue(calls, nullptr).ok());
    EXPECT_TRUE(*native.Ready());
  }
  EXPECT_EQ(allocations - before, 0);
}

}  // namespace
}  // namespace tutti::nccl
