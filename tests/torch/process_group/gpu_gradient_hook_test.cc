// The exchange of DDP's buckets on GPUs; GPU, CUDA and NCCL are fakes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <memory>
#include <string>
#include <vector>

#include "bindings/torch/process_group/gradient_hook.h"
#include "tests/torch/error_of.h"
#include "tests/torch/fake_gpu.h"
#include "tests/torch/process_group/group_of_threads.h"

namespace tutti::dist {
namespace {

using ::testing::HasSubstr;

// A bucket of two parameters as DDP's reducer hands it to a hook.
::c10d::GradBucket BucketOf(const at::Tensor& gradients, const std::vector<at::Tensor>& parameters) {
  std::vector<at::IntArrayRef> sizes;
  std::vector<std::size_t> offsets;
  std::vector<std::size_t> lengths;
  std::size_t offset = 0;
  for (const at::Tensor& parameter : parameters) {
    sizes.push_back(parameter.sizes());
    offsets.push_back(offset);
    lengths.push_back(static_cast<std::size_t>(parameter.numel()));
    offset += lengths.back();
  }
  return ::c10d::GradBucket(/*index=*/0, /*bucket_count=*/1, gradients, offsets, lengths, sizes, parameters,
                            std::nullopt);
}

// A parameter that is trained, as all are in DDP's buckets.
at::Tensor Trained(at::IntArrayRef sizes, int gpu) {
  return torch::ones(sizes, torch::device(Gpu(gpu)).requires_grad(true));
}

class GpuGradientHookTest : public ::testing::TestWithParam<std::string> {};

TEST_P(GpuGradientHookTest, BucketsAreAveragedInTheOrderOfStreams) {
  RunGroup(2, [](::c10d::Backend& group, const StorePtr&) {
    const int rank = group.getRank();
    const std::vector<at::Tensor> parameters = {Trained({2, 3}, rank), Trained({4}, rank)};
    const auto exchange = GradientExchange::Create(dynamic_cast<ProcessGroupTutti&>(group),
                                                   {{"a", parameters[0]}, {"b", parameters[1]}}, GetParam());
    const c10::StreamGuard guard(AnotherStream(rank));
    const at::Tensor gradients = torch::zeros({10}, Gpu(rank));
    ::c10d::GradBucket bucket = BucketOf(gradients, parameters);
    for (int step = 0; step < 3; ++step) {
      CurrentStream(rank).synchronize();
      StreamGate gate(rank);
      gradients.fill_(1 + 2 * rank + step);
      if (step == 0) gate.Open();  // the ranks meet, for which the host waits
      const auto future = exchange->Exchange(bucket);
      EXPECT_TRUE(future->completed());
      gate.Open();
      future->wait();
      EXPECT_LT((gradients.cpu() - (2 + step)).abs().max().item<float>(), 0.05) << gradients.cpu();
      EXPECT_EQ(gradients.data_ptr(), bucket.getBuffer().data_ptr());
    }
    EXPECT_EQ(exchange->step(), 3);
  });
}

INSTANTIATE_TEST_SUITE_P(All, GpuGradientHookTest, ::testing::Values("gradient_allreduce", "bytegrad"));

TEST(GpuGradientHookErrorsTest, AModelStaysOnItsDevice) {
  RunGroup(1, [](::c10d::Backend& group, const StorePtr&) {
    const std::vector<at::Tensor> parameters = {Trained({4}, 0)};
    const auto exchange = GradientExchange::Create(dynamic_cast<ProcessGroupTutti&>(group),
                                                   {{"frozen", torch::ones({4})}, {"a", parameters[0]}}, "bytegrad");
    ::c10d::GradBucket bucket = BucketOf(torch::zeros({4}), parameters);
    EXPECT_THAT(nn::ErrorOf([&] { exchange->Exchange(bucket); }),
                HasSubstr("DDP exchanges gradients on cpu, and at tutti.torch.register the model was on cuda:0"));
  });
}

}  // namespace
}  // namespace tutti::dist
