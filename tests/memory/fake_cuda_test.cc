// The fake with which code that works on streams is tested behaves as CUDA does.
#include "tests/harness/fake_cuda.h"

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "gtest/gtest.h"

namespace tutti {
namespace {

class FakeCudaTest : public testing::Test {
 protected:
  CUstream_st* NewStream() {
    CUstream_st* stream = nullptr;
    EXPECT_EQ(cuda_.create_stream(&stream), kCudaSuccess);
    streams_.push_back(stream);
    return stream;
  }
  CUevent_st* NewEvent() {
    CUevent_st* event = nullptr;
    EXPECT_EQ(cuda_.create_event(&event), kCudaSuccess);
    return event;
  }
  void TearDown() override {
    for (CUstream_st* stream : streams_) {
      EXPECT_EQ(cuda_.synchronize_stream(stream), kCudaSuccess);
      EXPECT_EQ(cuda_.destroy_stream(stream), kCudaSuccess);
    }
  }

  const CudaRuntime& cuda_ = FakeCuda::Table();
  std::vector<CUstream_st*> streams_;
};

// A kernel that blocks its stream until it is opened.
class Gate {
 public:
  explicit Gate(CUstream_st* stream) {
    FakeCuda::Launch(stream, [record = record_] { record->Await(); });
  }
  void Open() { record_->Reach(); }

 private:
  std::shared_ptr<FakeRecord> record_ = std::make_shared<FakeRecord>();
};

TEST_F(FakeCudaTest, AStreamPerformsItsWorkInOrder) {
  CUstream_st* stream = NewStream();
  void* device = nullptr;
  ASSERT_EQ(cuda_.allocate(&device, 64), kCudaSuccess);
  std::vector<char> in(64, 7);
  std::vector<char> out(64);
  Gate gate(stream);
  cuda_.copy_async(device, in.data(), 64, stream);
  cuda_.fill_async(device, 3, 32, stream);
  FakeCuda::Launch(stream, [device] { static_cast<char*>(device)[40] = 9; });
  cuda_.copy_async(out.data(), device, 64, stream);
  EXPECT_EQ(cuda_.query_stream(stream), kCudaNotReady);
  EXPECT_EQ(out[0], 0);
  gate.Open();
  EXPECT_EQ(cuda_.synchronize_stream(stream), kCudaSuccess);
  EXPECT_EQ(cuda_.query_stream(stream), kCudaSuccess);
  EXPECT_EQ(out[0], 3);
  EXPECT_EQ(out[32], 7);
  EXPECT_EQ(out[40], 9);
  EXPECT_EQ(cuda_.free(device), kCudaSuccess);
}

TEST_F(FakeCudaTest, AStreamWaitsForTheRecordAtTheTimeOfTheCall) {
  CUstream_st* first = NewStream();
  CUstream_st* second = NewStream();
  CUstream_st* third = NewStream();
  CUevent_st* event = NewEvent();
  EXPECT_EQ(cuda_.query_event(event), kCudaSuccess);
  Gate gate(first);
  cuda_.record_event(event, first);
  std::atomic<bool> reached = false;
  cuda_.wait_event(second, event);
  cuda_.call_host(
      second, [](void* flag) { *static_cast<std::atomic<bool>*>(flag) = true; }, &reached);
  EXPECT_EQ(cuda_.query_event(event), kCudaNotReady);
  // A later record on another stream ends, but `second` waits for the first record.
  cuda_.record_event(event, third);
  cuda_.synchronize_stream(third);
  EXPECT_EQ(cuda_.query_event(event), kCudaSuccess);
  EXPECT_FALSE(reached);
  gate.Open();
  cuda_.synchronize_stream(second);
  EXPECT_TRUE(reached);
  EXPECT_EQ(cuda_.destroy_event(event), kCudaSuccess);
  EXPECT_NE(cuda_.record_event(event, first), kCudaSuccess);
}

TEST_F(FakeCudaTest, ADestroyedStreamPerformsItsWork) {
  CUstream_st* stream = nullptr;
  cuda_.create_stream(&stream);
  const auto done = std::make_shared<FakeRecord>();
  Gate gate(stream);
  FakeCuda::Launch(stream, [done] { done->Reach(); });
  EXPECT_EQ(cuda_.destroy_stream(stream), kCudaSuccess);
  EXPECT_NE(cuda_.query_stream(stream), kCudaSuccess);
  gate.Open();
  done->Await();
}

TEST_F(FakeCudaTest, KnowsWhereAPointerLeads) {
  EXPECT_EQ(cuda_.set_device(3), kCudaSuccess);
  EXPECT_NE(cuda_.set_device(kFakeDevices), kCudaSuccess);
  void* device = nullptr;
  void* pinned = nullptr;
  ASSERT_EQ(cuda_.allocate(&device, 100), kCudaSuccess);
  ASSERT_EQ(cuda_.allocate_pinned(&pinned, 100), kCudaSuccess);
  int local = 0;
  CudaPointer found;
  EXPECT_EQ(cuda_.pointer(&found, static_cast<char*>(device) + 99), kCudaSuccess);
  EXPECT_EQ(found.kind, CudaPointer::Kind::kDevice);
  EXPECT_EQ(found.device, 3);
  EXPECT_EQ(cuda_.pointer(&found, pinned), kCudaSuccess);
  EXPECT_EQ(found.kind, CudaPointer::Kind::kPinned);
  EXPECT_EQ(cuda_.pointer(&found, &local), kCudaSuccess);
  EXPECT_EQ(found.kind, CudaPointer::Kind::kPageable);
  EXPECT_NE(cuda_.free(pinned), kCudaSuccess);
  EXPECT_EQ(cuda_.free(device), kCudaSuccess);
  EXPECT_NE(cuda_.free(device), kCudaSuccess);
  EXPECT_EQ(cuda_.free_pinned(pinned), kCudaSuccess);
  EXPECT_EQ(cuda_.set_device(0), kCudaSuccess);
}

TEST_F(FakeCudaTest, MemoryOfAStreamIsFreedInItsOrder) {
  CUstream_st* stream = NewStream();
  void* data = nullptr;
  ASSERT_EQ(cuda_.allocate_async(&data, 16, stream), kCudaSuccess);
  Gate gate(stream);
  cuda_.fill_async(data, 1, 16, stream);
  const FakeCudaCounts before = FakeCuda::Counts();
  EXPECT_EQ(cuda_.free_async(data, stream), kCudaSuccess);
  EXPECT_EQ((FakeCuda::Counts() - before).synchronizations, 0);
  EXPECT_NE(cuda_.free_async(data, stream), kCudaSuccess);
  gate.Open();
}

TEST_F(FakeCudaTest, CountsEveryKindOfCall) {
  const FakeCudaCounts before = FakeCuda::Counts();
  CUstream_st* stream = NewStream();
  CUevent_st* event = NewEvent();
  char bytes[8] = {};
  cuda_.fill_async(bytes, 0, 8, stream);
  cuda_.copy_async(bytes, bytes, 8, stream);
  FakeCuda::Launch(stream, [] {});
  FakeCuda::LaunchCollective(stream, [] {});
  cuda_.record_event(event, stream);
  cuda_.wait_event(nullptr, event);
  cuda_.query_event(event);
  cuda_.synchronize_stream(stream);
  const FakeCudaCounts counts = FakeCuda::Counts() - before;
  for (const std::int64_t count :
       {counts.streams, counts.events, counts.fills, counts.copies, counts.launches, counts.collectives, counts.records,
        counts.event_waits, counts.queries, counts.synchronizations}) {
    EXPECT_EQ(count, 1);
  }
  EXPECT_EQ(cuda_.synchronize_stream(nullptr), kCudaSuccess);
}

TEST_F(FakeCudaTest, FailsOnceWhereTold) {
  FakeCuda::FailNext("allocate", kCudaOutOfMemory);
  void* data = nullptr;
  EXPECT_EQ(cuda_.allocate(&data, 1), kCudaOutOfMemory);
  EXPECT_EQ(cuda_.allocate(&data, 1), kCudaSuccess);
  EXPECT_EQ(cuda_.free(data), kCudaSuccess);
  CUstream_st* stream = NewStream();
  CUevent_st* event = NewEvent();
  FakeCuda::FailNext("record_event", 999);
  EXPECT_EQ(cuda_.record_event(event, stream), 999);
  EXPECT_EQ(cuda_.query_event(event), kCudaSuccess);
}

TEST_F(FakeCudaTest, ACapturedStreamRecordsAndAGraphRepeats) {
  CUstream_st* stream = NewStream();
  int count = 0;
  FakeCuda::BeginCapture(stream);
  FakeCuda::Launch(stream, [&count] { ++count; });
  FakeCuda::Launch(stream, [&count] { count *= 3; });
  CudaCapture capture = CudaCapture::kNone;
  unsigned long long id = 0;
  EXPECT_EQ(cuda_.capture_of(stream, &capture, &id), kCudaSuccess);
  EXPECT_NE(id, 0u);
  EXPECT_EQ(capture, CudaCapture::kActive);
  {
    const CudaOutsideCapture outside(cuda_);
    EXPECT_NE(cuda_.synchronize_stream(stream), kCudaSuccess);
    EXPECT_NE(cuda_.query_stream(stream), kCudaSuccess);
  }
  FakeGraph graph;
  ASSERT_EQ(FakeCuda::EndCapture(stream, &graph), kCudaSuccess);
  EXPECT_EQ(count, 0);
  FakeCuda::LaunchGraph(graph, stream);
  FakeCuda::LaunchGraph(graph, stream);
  cuda_.synchronize_stream(stream);
  EXPECT_EQ(count, 12);
}

TEST_F(FakeCudaTest, WhatBelongsToNoCaptureInvalidatesIt) {
  CUstream_st* stream = NewStream();
  CUevent_st* event = NewEvent();
  CUstream_st* other = NewStream();
  FakeGraph graph;
  FakeCuda::BeginCapture(stream);
  EXPECT_EQ(cuda_.query_event(event), 900);
  EXPECT_EQ(FakeCuda::EndCapture(stream, &graph), 901);
  FakeCuda::BeginCapture(stream);
  EXPECT_EQ(cuda_.synchronize_stream(other), 900);
  EXPECT_EQ(FakeCuda::EndCapture(stream, &graph), 901);
  FakeCuda::BeginCapture(stream);
  {
    const CudaOutsideCapture outside(cuda_);
    EXPECT_EQ(cuda_.query_event(event), kCudaSuccess);
    EXPECT_EQ(cuda_.synchronize_stream(other), kCudaSuccess);
  }
  EXPECT_EQ(FakeCuda::EndCapture(stream, &graph), kCudaSuccess);
}

TEST_F(FakeCudaTest, AnEventIsRecordedOnItsOwnDeviceAlone) {
  CUevent_st* event = NewEvent();
  ASSERT_EQ(cuda_.set_device(1), kCudaSuccess);
  CUstream_st* other = NewStream();
  EXPECT_EQ(cuda_.record_event(event, other), kCudaInvalidHandle);
  EXPECT_EQ(cuda_.record_event(event, nullptr), kCudaInvalidHandle);
  EXPECT_EQ(cuda_.wait_event(other, event), kCudaSuccess);
  ASSERT_EQ(cuda_.set_device(0), kCudaSuccess);
  EXPECT_EQ(cuda_.record_event(event, nullptr), kCudaSuccess);
  EXPECT_EQ(cuda_.record_event(event, FakeCuda::LegacyStream()), kCudaSuccess);
  EXPECT_EQ(cuda_.destroy_event(event), kCudaSuccess);
}

TEST_F(FakeCudaTest, AStreamThatWaitsForACaptureJoinsIt) {
  CUstream_st* stream = NewStream();
  CUstream_st* other = NewStream();
  CUevent_st* begin = NewEvent();
  CUevent_st* end = NewEvent();
  CUevent_st* outside = NewEvent();
  EXPECT_EQ(cuda_.record_event(outside, other), kCudaSuccess);
  for (const bool joins : {true, false}) {
    int count = 0;
    FakeGraph graph;
    FakeCuda::BeginCapture(stream);
    FakeCuda::Launch(stream, [&count] { ++count; });
    EXPECT_EQ(cuda_.record_event(begin, stream), kCudaSuccess);
    {
      const CudaOutsideCapture apart(cuda_);
      EXPECT_EQ(cuda_.query_event(begin), 907);
    }
    EXPECT_EQ(cuda_.wait_event(other, begin), kCudaSuccess);
    EXPECT_TRUE(FakeCuda::IsCaptured(other));
    EXPECT_EQ(cuda_.wait_event(stream, outside), 905);
    FakeCuda::Launch(other, [&count] { count *= 3; });
    EXPECT_EQ(cuda_.record_event(end, other), kCudaSuccess);
    if (joins) {
      EXPECT_EQ(cuda_.wait_event(stream, end), kCudaSuccess);
    }
    EXPECT_EQ(FakeCuda::EndCapture(stream, &graph), joins ? kCudaSuccess : 904);
    EXPECT_FALSE(FakeCuda::IsCaptured(other));
    EXPECT_EQ(count, 0);
    if (!joins) continue;
    FakeCuda::LaunchGraph(graph, stream);
    FakeCuda::LaunchGraph(graph, stream);
    cuda_.synchronize_stream(stream);
    EXPECT_EQ(count, 12);
  }
}

// Ends the process with 0 if a device that is pushed and popped among the static objects leaves the current one as it
// was. Objects of the thread have been destroyed by then, and new ones may have their memory.
[[noreturn]] void PushDeviceAtExit() {
  { const CudaDeviceScope scope(FakeCuda::Table(), 1); }
  std::atexit([] {
    const CudaRuntime& cuda = FakeCuda::Table();
    cuda.set_device(2);
    {
      const CudaDeviceScope scope(cuda, 1);
      for (int i = 0; i < 100; ++i) std::memset(std::malloc(8), 0xFF, 8);
    }
    int device = 0;
    cuda.current_device(&device);
    _exit(device == 2 ? 0 : 1);
  });
  std::exit(2);
}

TEST(FakeCudaDeathTest, DevicesArePushedAfterTheObjectsOfTheThread) {
  EXPECT_EXIT(PushDeviceAtExit(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace tutti
