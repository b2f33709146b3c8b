// Process groups while a stream of torch is captured into a CUDA graph; GPU, CUDA and NCCL are fakes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <thread>
#include <vector>

#include "tests/harness/fake_cuda.h"
#include "tests/torch/error_of.h"
#include "tests/torch/fake_gpu.h"
#include "tests/torch/process_group/group_of_threads.h"

namespace tutti::dist {
namespace {

using ::testing::HasSubstr;
using Tensors = std::vector<at::Tensor>;
using nn::ErrorOf;

at::Device GpuOf(const ::c10d::Backend& group) { return Gpu(group.getRank()); }

at::Tensor Ones(at::Device gpu, bool strided) {
  const at::Tensor tensor = torch::ones({4, 2}, gpu);
  return strided ? tensor.t() : tensor;
}

bool Equals(const at::Tensor& tensor, float value) {
  const at::Tensor here = tensor.cpu();
  return here.equal(torch::full_like(here, value));
}

// The graph of what `calls` enqueues on the current stream of `gpu`. Memory comes from a pool of the capture, as of
// torch's allocator: asking for some does not end the capture.
FakeGraph Captured(at::Device gpu, const std::function<void()>& calls) {
  CUstream_st* const stream = HandleOf(CurrentStream(gpu.index()));
  CurrentStream(gpu.index()).synchronize();
  FakeCuda::BeginCapture(stream);
  int mode = kCudaCaptureRelaxed;
  FakeCuda::Table().exchange_capture_mode(&mode);
  calls();
  FakeCuda::Table().exchange_capture_mode(&mode);
  FakeGraph graph;
  EXPECT_EQ(FakeCuda::EndCapture(stream, &graph), kCudaSuccess);
  return graph;
}

// Runs `body` on two ranks that have made a call before, on streams that can be captured.
void RunTwoRanks(const std::function<void(::c10d::Backend&)>& body) {
  RunGroup(2, [&](::c10d::Backend& group, const StorePtr&) {
    const c10::StreamGuard guard(AnotherStream(group.getRank()));
    Tensors tensors = {Ones(GpuOf(group), false)};
    group.allreduce(tensors)->wait();
    body(group);
  });
}

// A strided tensor: the result is copied.
class GpuCaptureTest : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Strided, GpuCaptureTest, ::testing::Bool());

TEST_P(GpuCaptureTest, ACallIsMadeAnewByEveryLaunch) {
  RunTwoRanks([&](::c10d::Backend& group) {
    const at::Tensor tensor = Ones(GpuOf(group), GetParam());
    Tensors tensors = {tensor};
    c10::intrusive_ptr<::c10d::Work> work;  // kept: its memory is the graph's
    const FakeGraph graph = Captured(GpuOf(group), [&] {
      work = group.allreduce(tensors);
      work->wait();
    });
    EXPECT_TRUE(Equals(tensor, 1));
    for (const float expected : {2.0F, 4.0F}) {
      FakeCuda::LaunchGraph(graph, HandleOf(CurrentStream(group.getRank())));
      EXPECT_TRUE(Equals(tensor, expected));
    }
    while (!work->isCompleted()) std::this_thread::yield();
    EXPECT_TRUE(work->isSuccess());
  });
}

TEST_P(GpuCaptureTest, AFutureOrdersWhatFollowsInTheGraph) {
  for (const bool coalesced : {false, true}) {
    RunTwoRanks([&](::c10d::Backend& group) {
      const at::Tensor tensor = Ones(GpuOf(group), GetParam());
      const at::Tensor copy = torch::zeros_like(tensor);
      Tensors tensors = {tensor};
      c10::intrusive_ptr<::c10d::Work> work;
      const FakeGraph graph = Captured(GpuOf(group), [&] {
        if (coalesced) group.startCoalescing();
        work = group.allreduce(tensors);
        if (coalesced) work = group.endCoalescing();
        const auto future = work->getFuture();
        EXPECT_TRUE(future->completed());
        future->waitAndThrow();
        copy.copy_(tensor);
      });
      FakeCuda::LaunchGraph(graph, HandleOf(CurrentStream(group.getRank())));
      EXPECT_TRUE(Equals(copy, 2));
    });
  }
}

TEST_P(GpuCaptureTest, CallAndWaitAreBothInTheGraphOrBothOutside) {
  RunTwoRanks([&](::c10d::Backend& group) {
    Tensors before = {Ones(GpuOf(group), GetParam())};
    Tensors within = {Ones(GpuOf(group), GetParam())};
    const auto work_before = group.allreduce(before);
    c10::intrusive_ptr<::c10d::Work> work_within;
    Captured(GpuOf(group), [&] {
      EXPECT_THAT(ErrorOf([&] { work_before->wait(); }), HasSubstr("is not part of a CUDA graph"));
      work_within = group.allreduce(within);
      work_within->wait();
    });
    EXPECT_THAT(ErrorOf([&] { work_within->wait(); }), HasSubstr("is part of a CUDA graph"));
    EXPECT_THAT(ErrorOf([&] { work_within->getFuture()->waitAndThrow(); }), HasSubstr("is part of a CUDA graph"));
    work_before->wait();
    EXPECT_TRUE(Equals(before[0], 2));
  });
}

}  // namespace
}  // namespace tutti::dist
