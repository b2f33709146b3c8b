// How often the stream executor asks CUDA whether its runs have ended: a question takes a lock of the driver, which a
// thread that enqueues needs, too. The tests drive an executor of their own, of whose runs the engine knows nothing.
#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "tests/engine/stream_results.h"
#include "tests/engine/stream_world.h"

namespace tutti {
namespace {

std::int64_t QueriesOfPoll(StreamExecutor& executor) {
  const FakeCudaCounts before = FakeCuda::Counts();
  EXPECT_NE(executor.Poll(), Executor::Polled::kFailed);
  return (FakeCuda::Counts() - before).queries;
}

TEST(StreamPollsTest, OnlyTheOldestRunOfAStreamIsAskedFor) {
  constexpr int kRuns = 8;
  StreamWorld world(1);
  const auto programs = world.Programs(AllReducePlans(1, 8));
  Channel& channel = *world.At(0).channel;
  StreamExecutor executor(FakeDevice(0));
  const FakeMemory memory(0, 32);
  const CudaRuntime& cuda = FakeCuda::Table();
  CUstream_st* stream = nullptr;
  ASSERT_EQ(cuda.create_stream(&stream), kCudaSuccess);
  std::atomic<bool> is_computed = false;
  ASSERT_EQ(FakeCuda::Launch(stream, [&is_computed] { is_computed.wait(false); }), kCudaSuccess);
  std::vector<Call*> calls;
  for (int i = 0; i < kRuns; ++i) {
    Call* const call = calls.emplace_back(Call::Create(programs[0], channel));
    ASSERT_EQ(call->SetBuffers(nullptr, memory.data(), nullptr), absl::OkStatus());
    ASSERT_EQ(call->run().OnSubmit({.stream = stream}), absl::OkStatus());
    call->KeepForEngine();
    executor.Add(call->run());
  }
  EXPECT_EQ(QueriesOfPoll(executor), 0) << "all runs have just been enqueued";
  for (int i = 0; i < 3; ++i) EXPECT_EQ(QueriesOfPoll(executor), 1);
  is_computed = true;
  is_computed.notify_all();
  ASSERT_EQ(cuda.synchronize_stream(channel.on_device()->stream()), kCudaSuccess);
  EXPECT_EQ(QueriesOfPoll(executor), kRuns);
  EXPECT_TRUE(executor.idle());
  for (Call* const call : calls) call->Release();
  cuda.destroy_stream(stream);
}

}  // namespace
}  // namespace tutti
