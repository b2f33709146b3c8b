// A stream of the fake CUDA on which the calls of one rank are captured into graphs, and launched.
#ifndef TUTTI_TESTS_ENGINE_CAPTURING_STREAM_H_
#define TUTTI_TESTS_ENGINE_CAPTURING_STREAM_H_

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/engine/stream_world.h"
#include "tests/harness/fake_cuda.h"

namespace tutti {

class CapturingStream {
 public:
  explicit CapturingStream(const StreamRank& rank) : rank_(rank) {
    EXPECT_EQ(FakeCuda::Table().set_device(rank.rank), kCudaSuccess);
    EXPECT_EQ(FakeCuda::Table().create_stream(&stream_), kCudaSuccess);
  }
  ~CapturingStream() { EXPECT_EQ(FakeCuda::Table().destroy_stream(stream_), kCudaSuccess); }
  CapturingStream(const CapturingStream&) = delete;
  CapturingStream& operator=(const CapturingStream&) = delete;

  CUstream_st* get() const { return stream_; }

  // The graph of one run of `program`, in place on `memory`, to be launched while this object lives.
  FakeGraph Capture(const std::shared_ptr<const Program>& program, void* memory) {
    FakeCuda::BeginCapture(stream_);
    Work& work = captured_.emplace_back(rank_.Start(program, {.out = memory}, {.stream = stream_}));
    EXPECT_EQ(work.WaitOnStream(stream_), absl::OkStatus());
    FakeGraph graph;
    EXPECT_EQ(FakeCuda::EndCapture(stream_, &graph), kCudaSuccess);
    EXPECT_EQ(work.Wait(), absl::OkStatus());
    return graph;
  }
  void Launch(const FakeGraph& graph) const { FakeCuda::LaunchGraph(graph, stream_); }
  // Waits until all that was launched has run.
  void Synchronize() const { EXPECT_EQ(FakeCuda::Table().synchronize_stream(stream_), kCudaSuccess); }

 private:
  const StreamRank& rank_;
  CUstream_st* stream_ = nullptr;
  std::vector<Work> captured_;  // which keep the calls that the graphs make
};

}  // namespace tutti

#endif  // TUTTI_TESTS_ENGINE_CAPTURING_STREAM_H_
