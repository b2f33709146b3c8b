#include "tests/torch/process_group/group_of_threads.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <barrier>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <vector>

#include "bindings/torch/process_group/process_group_tutti.h"
#include "tests/harness/fake_device.h"

namespace tutti::dist {

void RunGroup(int size, const std::function<void(::c10d::Backend&, const StorePtr&)>& body) {
  UseFakeDevices();
  torch::set_num_threads(1);
  const StorePtr store = c10::make_intrusive<::c10d::HashStore>();
  std::barrier all_have_ended(size);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < size; ++rank) {
    ranks.emplace_back([&, rank] {
      try {
        const auto group = ProcessGroupTutti::Create({.store = c10::make_intrusive<::c10d::PrefixStore>("group", store),
                                                      .rank = rank,
                                                      .size = size,
                                                      .timeout = std::chrono::seconds(60),
                                                      .name = "group"});
        body(*group, store);
        all_have_ended.arrive_and_wait();
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
        all_have_ended.arrive_and_drop();
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

}  // namespace tutti::dist
