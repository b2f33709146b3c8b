// Functions that count and then allocate, in place of the C library's, also for the libraries that the program uses.
// Included by one file of the program, which is named *allocations_test.cc: sanitizers, which have an allocator of
// their own, leave such files out.
#ifndef TUTTI_TESTS_HARNESS_COUNT_ALLOCATIONS_H_
#define TUTTI_TESTS_HARNESS_COUNT_ALLOCATIONS_H_

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <limits>

#include "tutti/communicator.h"

namespace tutti {

// The allocations of all threads since the program began.
inline std::atomic<std::int64_t> allocations{0};

// The most bytes that the calling thread gets at once.
constinit inline thread_local std::size_t most_bytes = std::numeric_limits<std::size_t>::max();

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

// glibc's own functions, under which its allocator stays reachable for a program that has a malloc of its own.
extern "C" {
void* __libc_malloc(std::size_t bytes);                           // NOLINT: glibc's name
void* __libc_calloc(std::size_t count, std::size_t bytes);        // NOLINT
void* __libc_realloc(void* memory, std::size_t bytes);            // NOLINT
void* __libc_memalign(std::size_t alignment, std::size_t bytes);  // NOLINT

void* malloc(std::size_t bytes) noexcept {
  tutti::allocations.fetch_add(1, std::memory_order_relaxed);
  if (bytes > tutti::most_bytes) {
    errno = ENOMEM;
    return nullptr;
  }
  return __libc_malloc(bytes);
}
void* calloc(std::size_t count, std::size_t bytes) noexcept {
  tutti::allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_calloc(count, bytes);
}
void* realloc(void* memory, std::size_t bytes) noexcept {
  tutti::allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_realloc(memory, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) noexcept {
  tutti::allocations.fetch_add(1, std::memory_order_relaxed);
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) noexcept {
  *memory = aligned_alloc(alignment, bytes);
  return *memory != nullptr ? 0 : ENOMEM;
}
}

#endif  // TUTTI_TESTS_HARNESS_COUNT_ALLOCATIONS_H_
