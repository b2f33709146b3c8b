// The fake NCCL refuses, waits and counts as its users are told: tests above it find mistakes only then.
#include <thread>

#include "gtest/gtest.h"
#include "tests/harness/fake_cuda.h"
#include "tests/harness/fake_nccl.h"

namespace tutti::nccl {
namespace {

const Library& Nccl() { return FakeNccl::Table(); }

// Rank `rank` of a new communicator.
Comm Join(const UniqueId& id, int rank, int size, int blocking) {
  Config config;
  config.blocking = blocking;
  Comm comm = nullptr;
  Result state = Nccl().comm_init_rank_config(&comm, size, id, rank, &config);
  while (state == Result::kInProgress) {
    EXPECT_EQ(Nccl().comm_get_async_error(comm, &state), Result::kSuccess);
    std::this_thread::yield();
  }
  EXPECT_EQ(state, Result::kSuccess);
  return comm;
}

Comm Alone(int blocking) {
  UniqueId id{};
  EXPECT_EQ(Nccl().get_unique_id(&id), Result::kSuccess);
  return Join(id, 0, 1, blocking);
}

Result AllReduce(Comm comm, float* data, CUstream_st* stream) {
  return Nccl().all_reduce(data, data, 1, DataType::kFloat32, RedOp::kSum, comm, stream);
}

class FakeNcclTest : public testing::Test {
 protected:
  FakeNcclTest() { EXPECT_EQ(FakeCuda::Table().create_stream(&stream_), kCudaSuccess); }
  ~FakeNcclTest() override {
    EXPECT_EQ(FakeCuda::Table().synchronize_stream(stream_), kCudaSuccess);
    EXPECT_EQ(FakeCuda::Table().destroy_stream(stream_), kCudaSuccess);
  }
  CUstream_st* stream_ = nullptr;
  float data_ = 1;
};

TEST_F(FakeNcclTest, BlockingAndNonBlockingCommunicatorsAreNoGroup) {
  const Comm blocking = Alone(1);
  const Comm other = Alone(0);
  EXPECT_EQ(Nccl().group_start(), Result::kSuccess);
  EXPECT_EQ(AllReduce(blocking, &data_, stream_), Result::kSuccess);
  EXPECT_EQ(AllReduce(other, &data_, stream_), Result::kSuccess);
  EXPECT_EQ(Nccl().group_end(), Result::kInvalidArgument);
  EXPECT_EQ(FakeCuda::Table().query_stream(stream_), kCudaSuccess);
  EXPECT_EQ(Nccl().comm_destroy(blocking), Result::kSuccess);
  EXPECT_EQ(Nccl().comm_destroy(other), Result::kSuccess);
}

TEST_F(FakeNcclTest, ANonBlockingGroupIsCountedAndIsOnItsStreamAfterAPoll) {
  const Comm comm = Alone(0);
  const int before = FakeNccl::NonBlockingGroups();
  EXPECT_EQ(AllReduce(comm, &data_, stream_), Result::kInProgress);
  EXPECT_EQ(FakeNccl::NonBlockingGroups(), before + 1);
  EXPECT_EQ(AllReduce(comm, &data_, stream_), Result::kInvalidArgument);
  Result state = Result::kInProgress;
  EXPECT_EQ(Nccl().comm_get_async_error(comm, &state), Result::kSuccess);
  EXPECT_EQ(state, Result::kSuccess);
  EXPECT_EQ(AllReduce(comm, &data_, stream_), Result::kInProgress);
  EXPECT_EQ(Nccl().comm_get_async_error(comm, &state), Result::kSuccess);
  EXPECT_EQ(FakeCuda::Table().synchronize_stream(stream_), kCudaSuccess);
  EXPECT_EQ(Nccl().comm_destroy(comm), Result::kSuccess);
}

// Rank 0 of two waits in its first call, for rank 1, which never makes it, until `end` ends that.
void WaitInACall(CUstream_st* stream, float* data, void (*end)(Comm comm, std::thread& caller)) {
  UniqueId id{};
  EXPECT_EQ(Nccl().get_unique_id(&id), Result::kSuccess);
  Comm peer = nullptr;
  std::thread joining([&] { peer = Join(id, 1, 2, 1); });
  const Comm comm = Join(id, 0, 2, 1);
  joining.join();
  std::thread caller([&] { EXPECT_EQ(AllReduce(comm, data, stream), Result::kInternalError); });
  // Whoever else uses the communicator is refused once the call waits.
  int rank = 0;
  while (Nccl().comm_user_rank(comm, &rank) == Result::kSuccess) std::this_thread::yield();
  end(comm, caller);
  EXPECT_EQ(Nccl().comm_abort(peer), Result::kSuccess);
}

TEST_F(FakeNcclTest, AnAbortInAGroupFreesTheCommunicatorWhenTheGroupEnds) {
  const int misuses = FakeNccl::Misuses();
  WaitInACall(stream_, &data_, [](Comm comm, std::thread& caller) {
    const int living = FakeNccl::LivingCommunicators();
    Result state = Result::kInternalError;
    EXPECT_EQ(Nccl().comm_get_async_error(comm, &state), Result::kSuccess);
    EXPECT_EQ(state, Result::kSuccess);
    EXPECT_EQ(Nccl().group_start(), Result::kSuccess);
    EXPECT_EQ(Nccl().comm_abort(comm), Result::kSuccess);
    caller.join();
    EXPECT_EQ(FakeNccl::LivingCommunicators(), living);
    EXPECT_EQ(Nccl().group_end(), Result::kSuccess);
    EXPECT_EQ(FakeNccl::LivingCommunicators(), living - 1);
  });
  EXPECT_EQ(FakeNccl::Misuses(), misuses + 1) << "comm_user_rank of another thread";
}

TEST_F(FakeNcclTest, TheWaitOfACallLastsUntilThePeersHaveComeOrPatienceIsOver) {
  const FakeNccl::With settings({.patience = absl::Milliseconds(50)});
  WaitInACall(stream_, &data_, [](Comm comm, std::thread& caller) {
    caller.join();
    Result state = Result::kSuccess;
    EXPECT_EQ(Nccl().comm_get_async_error(comm, &state), Result::kSuccess);
    EXPECT_EQ(state, Result::kInternalError);
    EXPECT_EQ(Nccl().comm_abort(comm), Result::kSuccess);
  });
}

}  // namespace
}  // namespace tutti::nccl
