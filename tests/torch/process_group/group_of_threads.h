// Process groups of torch whose ranks are threads of this process, without Python.
#ifndef TUTTI_TESTS_TORCH_PROCESS_GROUP_GROUP_OF_THREADS_H_
#define TUTTI_TESTS_TORCH_PROCESS_GROUP_GROUP_OF_THREADS_H_

#include <functional>
#include <torch/csrc/distributed/c10d/Backend.hpp>

namespace tutti::dist {

using StorePtr = c10::intrusive_ptr<::c10d::Store>;

// Runs `body` on every rank of a new default group on the backend `tutti`, and returns when all have returned. `body`
// gets the store of the job. Communicators take the fake CUDA and NCCL for the GPUs of this process.
void RunGroup(int size, const std::function<void(::c10d::Backend&, const StorePtr&)>& body);

}  // namespace tutti::dist

#endif  // TUTTI_TESTS_TORCH_PROCESS_GROUP_GROUP_OF_THREADS_H_
