// Errors of process groups on GPUs; GPU, CUDA and NCCL are fakes, or missing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <future>
#include <string>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <vector>

#include "comm/device_parts.h"
#include "tests/harness/fake_cuda.h"
#include "tests/harness/fake_device.h"
#include "tests/torch/error_of.h"
#include "tests/torch/fake_gpu.h"
#include "tests/torch/process_group/group_of_threads.h"

namespace tutti::dist {
namespace {

using ::testing::HasSubstr;
using Tensors = std::vector<at::Tensor>;
using nn::ErrorOf;

TEST(GpuErrorsTest, ARankOfAGroupWorksOnOneGpu) {
  RunGroup(1, [](::c10d::Backend& group, const StorePtr&) {
    Tensors first = {torch::ones({2}, Gpu(3))};
    group.allreduce(first)->wait();
    Tensors second = {torch::ones({2}, Gpu(4))};
    EXPECT_THAT(ErrorOf([&] { group.allreduce(second)->wait(); }),
                HasSubstr("a tensor is on cuda:4, and rank 0 of the group works on cuda:3"));
    group.allreduce(first)->wait();  // the group goes on
  });
}

// torch gives a group that it splits off a clone of the store, which most stores make as another object.
TEST(GpuErrorsTest, AGroupThatIsSplitOffWorksOnTheGpuThatTheDefaultGroupHasJoined) {
  RunGroup(1, [](::c10d::Backend& group, const StorePtr&) {
    const auto options = group.getBackendOptions();
    options->group_name = "split";
    const auto clone = c10::make_intrusive<::c10d::PrefixStore>("split", c10::make_intrusive<::c10d::HashStore>());
    const auto split = group.split(clone, {0}, options);
    group.eagerConnectSingleDevice(Gpu(0));
    Tensors tensors = {torch::ones({2}, Gpu(1))};
    EXPECT_THAT(ErrorOf([&] { split->allreduce(tensors)->wait(); }),
                HasSubstr("a tensor is on cuda:1, and rank 0 has joined the job with device_id=cuda:0"));
  });
}

TEST(GpuErrorsTest, TensorsOfACallAreOnOneDevice) {
  RunGroup(1, [](::c10d::Backend& group, const StorePtr&) {
    std::vector<Tensors> outputs = {{torch::ones({2})}};
    Tensors inputs = {torch::ones({2}, Gpu(0))};
    EXPECT_THAT(ErrorOf([&] { group.allgather(outputs, inputs)->wait(); }),
                HasSubstr("all_gather: tensor_list is on cpu, and another tensor of the call on cuda:0"));
  });
}

TEST(GpuErrorsTest, PairsOfACoalescedCallAreOnOneDevice) {
  RunGroup(1, [](::c10d::Backend& group, const StorePtr&) {
    Tensors some = {torch::ones({2}), torch::ones({2}, Gpu(0))};
    Tensors others = {torch::ones({2}), torch::ones({2}, Gpu(0))};
    std::vector<Tensors> lists = {others};
    EXPECT_THAT(ErrorOf([&] { group.allgather_into_tensor_coalesced(some, others)->wait(); }),
                HasSubstr("input_tensor is on cuda:0, and another tensor of the call on cpu"));
    EXPECT_THAT(ErrorOf([&] { group.allgather_coalesced(lists, some)->wait(); }),
                HasSubstr("input_tensor_list is on cuda:0, and another tensor of the call on cpu"));
    EXPECT_THAT(ErrorOf([&] { group.reduce_scatter_tensor_coalesced(some, others)->wait(); }),
                HasSubstr("output is on cuda:0, and another tensor of the call on cpu"));
  });
}

TEST(GpuErrorsTest, OtherDevicesAreRefused) {
  RunGroup(1, [](::c10d::Backend& group, const StorePtr&) {
    Tensors tensors = {torch::ones({2}, at::kMeta)};
    EXPECT_THAT(ErrorOf([&] { group.allreduce(tensors)->wait(); }),
                HasSubstr("tensor is on meta; Tutti moves tensors on the CPU and on GPUs (cuda)"));
  });
}

TEST(GpuErrorsTest, MessagesHaveNeitherTagsNorAnySource) {
  RunGroup(1, [](::c10d::Backend& group, const StorePtr&) {
    Tensors tensors = {torch::ones({2}, Gpu(0))};
    EXPECT_THAT(ErrorOf([&] { group.send(tensors, 0, 5)->wait(); }), HasSubstr("tag"));
    EXPECT_NE(ErrorOf([&] { group.recvAnysource(tensors, 0)->wait(); }), "");
    group.startCoalescing();
    group.send(tensors, 0, 5);
    EXPECT_THAT(ErrorOf([&] { group.endCoalescing(); }), HasSubstr("has the tag 5"));
    group.startCoalescing();
    group.recvAnysource(tensors, 0);
    EXPECT_THAT(ErrorOf([&] { group.endCoalescing(); }), HasSubstr("needs the rank that sends"));
    group.allreduce(tensors)->wait();  // the group goes on
  });
}

// torch calls endCoalescing, and leaves its own state of a batch, only where all calls of the batch have returned.
TEST(GpuErrorsTest, AnErrorInABatchOfMessagesIsThrownAtItsEnd) {
  RunGroup(2, [](::c10d::Backend& group, const StorePtr&) {
    const int rank = group.getRank();
    Tensors never_sent = {torch::full({8}, -1.0F, Gpu(rank))};
    Tensors tensors = {torch::full({8}, rank == 0 ? 7.0F : 0.0F, Gpu(rank))};
    group.startCoalescing();
    group.send(never_sent, 1 - rank, 0);
    group.send(tensors, 2, 0);
    EXPECT_THAT(ErrorOf([&] { group.endCoalescing(); }), HasSubstr("dst is rank 2"));
    EXPECT_THAT(ErrorOf([&] { group.send(tensors, 2, 0); }), HasSubstr("dst is rank 2"));
    group.allreduce(never_sent)->wait();  // joins the ranks
    const auto work = rank == 0 ? group.send(tensors, 1, 0) : group.recv(tensors, 0, 0);
    ASSERT_TRUE(work.defined());
    work->wait();
    EXPECT_TRUE(tensors[0].cpu().equal(torch::full({8}, 7.0F)));
  });
}

// The tensors of calls that have been started would be let go while the GPU uses them.
TEST(GpuErrorsTest, WithoutMemoryForOneCallNoneIsStarted) {
  std::promise<void> rank_0_has_failed;
  RunGroup(2, [&](::c10d::Backend& group, const StorePtr&) {
    const at::Device gpu = Gpu(group.getRank());
    Tensors tensors = {torch::zeros({64}, gpu), torch::empty({0}, gpu)};
    group.allreduce_coalesced(tensors)->wait(std::chrono::seconds(60));
    tensors[0].fill_(1);
    group.barrier()->wait();
    if (group.getRank() == 0) {
      FakeCuda::FailNext("allocate", 2);
      EXPECT_THAT(ErrorOf([&] { group.allreduce_coalesced(tensors); }), HasSubstr("the fake CUDA"));
      rank_0_has_failed.set_value();
    } else {
      rank_0_has_failed.get_future().wait();
    }
    group.allreduce_coalesced(tensors)->wait(std::chrono::seconds(60));
    EXPECT_TRUE(tensors[0].cpu().equal(torch::full({64}, 2.0F)));
  });
}

TEST(GpuErrorsTest, WithoutAGpuTheReasonIsSaid) {
  RunGroup(1, [](::c10d::Backend& group, const StorePtr&) {
    SetPartsOfThisProcess(nullptr);  // this machine's own, which has no GPU
    Tensors tensors = {torch::ones({2}, Gpu(0))};
    const std::string first = ErrorOf([&] { group.eagerConnectSingleDevice(Gpu(0)); });
    EXPECT_THAT(first, HasSubstr("cuda_device 0: "));
    UseFakeDevices();
    EXPECT_EQ(ErrorOf([&] { group.allreduce(tensors)->wait(); }), first);
    EXPECT_EQ(group.getError(), ::c10d::ErrorType::COMM_ERROR);
    Tensors on_host = {torch::ones({2})};
    group.allreduce(on_host)->wait();
  });
}

TEST(GpuErrorsTest, ARankThatAbortsIsNamedByLaterCalls) {
  std::promise<void> first_call_has_ended;
  RunGroup(2, [&](::c10d::Backend& group, const StorePtr&) {
    Tensors tensors = {torch::ones({8}, Gpu(group.getRank()))};
    group.allreduce(tensors)->wait(std::chrono::seconds(60));
    if (group.getRank() == 1) {
      first_call_has_ended.get_future().wait();
      group.abort();
      return;
    }
    first_call_has_ended.set_value();
    const auto work = group.allreduce(tensors);
    EXPECT_THAT(ErrorOf([&] { work->wait(std::chrono::seconds(60)); }), HasSubstr("rank 1 has aborted"));
    EXPECT_TRUE(work->isCompleted());
    EXPECT_FALSE(work->isSuccess());
    EXPECT_THAT(ErrorOf([&] { group.allreduce(tensors)->wait(); }), HasSubstr("rank 1 has aborted"));
    EXPECT_THAT(ErrorOf([&] { group.allreduce(tensors)->getFuture()->waitAndThrow(); }),
                HasSubstr("rank 1 has aborted"));
    EXPECT_NE(group.getError(), ::c10d::ErrorType::SUCCESS);
  });
}

TEST(GpuErrorsTest, ADestroyedGroupMakesNoCalls) {
  RunGroup(1, [](::c10d::Backend& group, const StorePtr&) {
    Tensors tensors = {torch::ones({8}, Gpu(0))};
    group.allreduce(tensors)->wait();
    group.shutdown();
    EXPECT_THAT(ErrorOf([&] { group.allreduce(tensors)->wait(); }), HasSubstr("this process group was destroyed"));
  });
}

}  // namespace
}  // namespace tutti::dist
