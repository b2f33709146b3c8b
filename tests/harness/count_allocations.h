// An allocator that counts, in place of the test program's own. Included by one file of the program, which is named
// *allocations_test.cc: sanitizers, which have an allocator of their own, leave such files out.
#ifndef TUTTI_TESTS_HARNESS_COUNT_ALLOCATIONS_H_
#define TUTTI_TESTS_HARNESS_COUNT_ALLOCATIONS_H_

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "tutti/communicator.h"

namespace tutti {

// The allocations of all threads since the program began.
inline std::atomic<std::int64_t> allocations{0};

// The allocations of the whole process while every rank of `comm` runs `rounds`, which all ranks call.
template <typename Rounds>
std::int64_t AllocationsDuring(Communicator& comm, Rounds rounds) {
  const auto meet = [&] { EXPECT_EQ(comm.Barrier().Wait(), absl::OkStatus()); };
  for (int warm_up = 0; warm_up < 10; ++warm_up) {
    // Two barriers at a time leave two operations in the pool: one may not have come back yet when the next barrier
    // begins.
    Work first = comm.Barrier();
    Work second = comm.Barrier();
    EXPECT_EQ(first.Wait(), absl::OkStatus());
    EXPECT_EQ(second.Wait(), absl::OkStatus());
  }
  const std::int64_t before = allocations;
  meet();  // no rank begins before all have read the count
  rounds();
  meet();
  const std::int64_t during = allocations - before;
  meet();  // no rank goes on before all have read the count
  return during;
}

}  // namespace tutti

#pragma GCC diagnostic ignored "-Wmismatched-new-delete"  // this new and this delete do match
void* operator new(std::size_t bytes) {
  tutti::allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

#endif  // TUTTI_TESTS_HARNESS_COUNT_ALLOCATIONS_H_
