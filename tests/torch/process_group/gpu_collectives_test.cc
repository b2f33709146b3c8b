// Collectives of process groups on tensors of GPUs; GPU, CUDA and NCCL are fakes.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <numeric>
#include <string>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>
#include <vector>

#include "tests/torch/fake_gpu.h"
#include "tests/torch/process_group/group_of_threads.h"

namespace tutti::dist {
namespace {

using Tensors = std::vector<at::Tensor>;
using TensorLists = std::vector<Tensors>;
// Makes a call on tensors of `device` and returns the outputs, which the current stream may read.
using CallOn = std::function<Tensors(::c10d::Backend&, at::Device device)>;

// Small integers that differ between ranks and between calls.
at::Tensor Values(const ::c10d::Backend& group, at::Device device, at::IntArrayRef sizes, int first,
                  at::ScalarType type = at::kFloat) {
  const std::int64_t count = c10::multiply_integers(sizes);
  return ((torch::arange(count) * 7 + first + 3 * group.getRank()) % 13 + 1).view(sizes).to(type).to(device);
}

at::Tensor Room(at::Device device, at::IntArrayRef sizes) { return torch::full(sizes, -1.0F, device); }

// The same elements in another order of memory.
at::Tensor Strided(const at::Tensor& tensor) { return tensor.t().contiguous().t(); }

Tensors Rooms(const ::c10d::Backend& group, at::Device device, at::IntArrayRef sizes) {
  Tensors rooms;
  for (int rank = 0; rank < group.getSize(); ++rank) rooms.push_back(Room(device, sizes));
  return rooms;
}

const std::vector<std::pair<std::string, CallOn>>& AllCalls() {
  static const std::vector<std::pair<std::string, CallOn>> calls = {
      {"allreduce",
       [](auto& group, at::Device device) {
         Tensors tensors = {Values(group, device, {4, 5}, 1)};
         group.allreduce(tensors, {})->wait();
         return tensors;
       }},
      {"allreduce of integers, MAX",
       [](auto& group, at::Device device) {
         Tensors tensors = {Values(group, device, {9}, 5, at::kLong)};
         group.allreduce(tensors, {.reduceOp = ::c10d::ReduceOp::MAX})->wait();
         return tensors;
       }},
      {"allreduce of a strided tensor, AVG",
       [](auto& group, at::Device device) {
         Tensors tensors = {Strided(Values(group, device, {4, 5}, 2))};
         group.allreduce(tensors, {.reduceOp = ::c10d::ReduceOp::AVG})->wait();
         return tensors;
       }},
      {"allreduce_coalesced, one of no elements",
       [](auto& group, at::Device device) {
         Tensors tensors = {Values(group, device, {3}, 1), Room(device, {0}), Values(group, device, {8}, 3)};
         group.allreduce_coalesced(tensors, {})->wait();
         return tensors;
       }},
      {"broadcast of a strided tensor",
       [](auto& group, at::Device device) {
         Tensors tensors = {Strided(Values(group, device, {3, 7}, 4))};
         group.broadcast(tensors, {.rootRank = group.getSize() - 1})->wait();
         return tensors;
       }},
      {"reduce",
       [](auto& group, at::Device device) {
         Tensors tensors = {Values(group, device, {6}, 4)};
         group.reduce(tensors, {.rootRank = 0})->wait();
         return group.getRank() == 0 ? tensors : Tensors();
       }},
      {"allgather",
       [](auto& group, at::Device device) {
         TensorLists outputs = {Rooms(group, device, {2, 3})};
         Tensors inputs = {Strided(Values(group, device, {2, 3}, 6))};
         group.allgather(outputs, inputs)->wait();
         return outputs[0];
       }},
      {"_allgather_base",
       [](auto& group, at::Device device) {
         at::Tensor output = Room(device, {group.getSize() * 5});
         at::Tensor input = Values(group, device, {5}, 2);
         group._allgather_base(output, input, {})->wait();
         return Tensors{output};
       }},
      {"allgather_coalesced",
       [](auto& group, at::Device device) {
         TensorLists outputs;
         for (int rank = 0; rank < group.getSize(); ++rank) outputs.push_back({Room(device, {2}), Room(device, {3})});
         Tensors inputs = {Values(group, device, {2}, 1), Values(group, device, {3}, 2)};
         group.allgather_coalesced(outputs, inputs, {})->wait();
         Tensors all;
         for (const Tensors& list : outputs) all.insert(all.end(), list.begin(), list.end());
         return all;
       }},
      {"gather",
       [](auto& group, at::Device device) {
         TensorLists outputs;
         if (group.getRank() == 0) outputs.push_back(Rooms(group, device, {4}));
         Tensors inputs = {Values(group, device, {4}, 3)};
         group.gather(outputs, inputs, {.rootRank = 0})->wait();
         return outputs.empty() ? Tensors() : outputs[0];
       }},
      {"scatter to a strided tensor",
       [](auto& group, at::Device device) {
         TensorLists inputs;
         if (group.getRank() == 0) {
           inputs.emplace_back();
           for (int rank = 0; rank < group.getSize(); ++rank) inputs[0].push_back(Values(group, device, {2, 3}, rank));
         }
         Tensors outputs = {Strided(Room(device, {2, 3}))};
         group.scatter(outputs, inputs, {.rootRank = 0})->wait();
         return outputs;
       }},
      {"reduce_scatter",
       [](auto& group, at::Device device) {
         TensorLists inputs(1);
         for (int rank = 0; rank < group.getSize(); ++rank) inputs[0].push_back(Values(group, device, {2, 2}, rank));
         Tensors outputs = {Room(device, {2, 2})};
         group.reduce_scatter(outputs, inputs, {})->wait();
         return outputs;
       }},
      {"reduce_scatter of blocks of different sizes",
       [](auto& group, at::Device device) {
         TensorLists inputs(1);
         for (int rank = 0; rank < group.getSize(); ++rank) {
           inputs[0].push_back(Values(group, device, {rank + 1}, rank));
         }
         Tensors outputs = {Room(device, {group.getRank() + 1})};
         group.reduce_scatter(outputs, inputs, {})->wait();
         return outputs;
       }},
      {"alltoall_base of different splits, some empty",
       [](auto& group, at::Device device) {
         const std::int64_t size = group.getSize();
         // Rank r sends r·(r + d) rows to rank d: rank 0 sends nothing.
         std::vector<std::int64_t> to;
         std::vector<std::int64_t> from;
         for (std::int64_t peer = 0; peer < size; ++peer) {
           to.push_back(group.getRank() * (group.getRank() + peer));
           from.push_back(peer * (peer + group.getRank()));
         }
         const auto rows = [](const auto& splits) {
           return std::accumulate(splits.begin(), splits.end(), std::int64_t{0});
         };
         at::Tensor output = Room(device, {rows(from), 2});
         at::Tensor input = Values(group, device, {rows(to), 2}, 4);
         group.alltoall_base(output, input, from, to)->wait();
         return Tensors{output};
       }},
      {"allgather of different sizes",
       [](auto& group, at::Device device) {
         TensorLists outputs(1);
         for (int rank = 0; rank < group.getSize(); ++rank) outputs[0].push_back(Room(device, {rank + 1}));
         Tensors inputs = {Values(group, device, {group.getRank() + 1}, 6)};
         group.allgather(outputs, inputs)->wait();
         return outputs[0];
       }},
      {"_reduce_scatter_base",
       [](auto& group, at::Device device) {
         at::Tensor output = Room(device, {3});
         at::Tensor input = Values(group, device, {group.getSize() * 3}, 8);
         group._reduce_scatter_base(output, input, {})->wait();
         return Tensors{output};
       }},
  };
  return calls;
}

TEST(GpuCollectivesTest, ResultsAreThoseOfTheCpu) {
  for (int size = 1; size <= 3; ++size) {
    RunGroup(size, [](::c10d::Backend& group, const StorePtr&) {
      for (const auto& [name, call] : AllCalls()) {
        const Tensors on_host = call(group, at::kCPU);
        const Tensors on_gpu = call(group, Gpu(group.getRank()));
        ASSERT_EQ(on_gpu.size(), on_host.size());
        for (std::size_t i = 0; i < on_gpu.size(); ++i) {
          EXPECT_EQ(on_gpu[i].device(), Gpu(group.getRank()));
          EXPECT_TRUE(on_gpu[i].cpu().equal(on_host[i]))
              << name << ", rank " << group.getRank() << " of " << group.getSize() << ":\n"
              << on_gpu[i].cpu() << "\n"
              << on_host[i];
        }
      }
    });
  }
}

TEST(GpuCollectivesTest, CoalescedCallsHaveOneWork) {
  RunGroup(2, [](::c10d::Backend& group, const StorePtr&) {
    const at::Device gpu = Gpu(group.getRank());
    Tensors a = {Values(group, gpu, {3}, 1)};
    Tensors b = {Strided(Values(group, gpu, {2, 4}, 2))};
    group.startCoalescing();
    group.allreduce(a, {});
    group.allreduce(b, {});
    const auto work = group.endCoalescing();
    const auto future = work->getFuture();
    EXPECT_TRUE(future->completed());
    future->wait();  // lets the current stream wait
    EXPECT_TRUE(a[0].cpu().equal(Values(group, at::kCPU, {3}, 1 - 3 * group.getRank()) +
                                 Values(group, at::kCPU, {3}, 4 - 3 * group.getRank())));
    work->wait();
    EXPECT_TRUE(b[0].cpu().equal(Values(group, at::kCPU, {2, 4}, 2 - 3 * group.getRank()) +
                                 Values(group, at::kCPU, {2, 4}, 5 - 3 * group.getRank())));
  });
}

TEST(GpuCollectivesTest, Messages) {
  RunGroup(3, [](::c10d::Backend& group, const StorePtr&) {
    const at::Device gpu = Gpu(group.getRank());
    group.eagerConnectSingleDevice(gpu);
    Tensors tensors = {group.getRank() == 0 ? torch::full({2, 3}, 7.0F, gpu) : Strided(Room(gpu, {2, 3}))};
    if (group.getRank() == 0) group.send(tensors, 2, 0)->wait();
    if (group.getRank() == 2) group.recv(tensors, 0, 0)->wait();
    EXPECT_TRUE(tensors[0].cpu().equal(torch::full({2, 3}, group.getRank() == 1 ? -1.0F : 7.0F)));
  });
}

TEST(GpuCollectivesTest, ABatchOfMessagesTravelsTogetherAlsoAsTheFirstCall) {
  RunGroup(3, [](::c10d::Backend& group, const StorePtr&) {
    const int rank = group.getRank();
    EXPECT_TRUE(group.supportsCoalescing());
    // Every rank sends to the other two before it receives.
    TensorLists received;
    group.startCoalescing();
    for (const int step : {1, 2}) {
      Tensors sent = {torch::full({4}, static_cast<float>(10 * rank + step), Gpu(rank))};
      group.send(sent, (rank + step) % 3, 0);
    }
    for (const int step : {1, 2}) {
      received.push_back({Strided(Room(Gpu(rank), {2, 2}))});
      group.recv(received.back(), (rank + 3 - step) % 3, 0);
    }
    const auto work = group.endCoalescing();
    work->getFuture()->wait();
    for (const int step : {1, 2}) {
      EXPECT_TRUE(received[step - 1][0].cpu().equal(
          torch::full({2, 2}, static_cast<float>(10 * ((rank + 3 - step) % 3) + step))));
    }
  });
}

TEST(GpuCollectivesTest, GroupsOfSomeRanks) {
  for (const bool joined_before : {false, true}) {
    RunGroup(3, [&](::c10d::Backend& group, const StorePtr& store) {
      const at::Device gpu = Gpu(group.getRank());
      if (joined_before) group.eagerConnectSingleDevice(gpu);
      if (group.getRank() == 1) return;
      const auto options = group.getBackendOptions();
      options->group_name = "ends";
      const auto ends = group.split(c10::make_intrusive<::c10d::PrefixStore>("ends", store), {2, 0}, options);
      Tensors tensors = {torch::full({5}, 1.0F + static_cast<float>(group.getRank()), gpu)};
      ends->allreduce(tensors)->wait();
      EXPECT_TRUE(tensors[0].cpu().equal(torch::full({5}, 4.0F)));
      ends->barrier()->wait();
    });
  }
}

TEST(GpuCollectivesTest, OneSplitForBothTypesOfDevicesMakesOneCommunicator) {
  RunGroup(2, [](::c10d::Backend& group, const StorePtr& store) {
    const auto options = group.getBackendOptions();
    options->group_name = "both";
    const auto of_both = c10::make_intrusive<::c10d::PrefixStore>("both", store);
    const auto on_host = group.split(of_both, {0, 1}, options);
    const auto on_gpu = group.split(of_both, {0, 1}, options);
    on_host->barrier()->wait();
    group.barrier()->wait();
    on_gpu->abort();
    EXPECT_NE(on_host->getError(), ::c10d::ErrorType::SUCCESS);
  });
}

TEST(GpuCollectivesTest, AGroupThatIsSplitOffJoinsAtOnceWhereItsParentDid) {
  RunGroup(3, [](::c10d::Backend& group, const StorePtr& store) {
    const int rank = group.getRank();
    group.eagerConnectSingleDevice(Gpu(rank));
    const auto options = group.getBackendOptions();
    options->group_name = "all";
    const auto all = group.split(c10::make_intrusive<::c10d::PrefixStore>("all", store), {0, 1, 2}, options);
    Tensors tensors = {torch::full({4}, static_cast<float>(rank), Gpu(rank))};
    if (rank == 1) all->send(tensors, 0, 0)->wait();
    if (rank == 0) all->recv(tensors, 1, 0)->wait();
    group.barrier()->wait();  // ranks 0 and 1 come here although rank 2 makes no call of the new group
    EXPECT_TRUE(tensors[0].cpu().equal(torch::full({4}, rank == 2 ? 2.0F : 1.0F)));
  });
}

}  // namespace
}  // namespace tutti::dist
