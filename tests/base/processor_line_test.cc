#include "base/processor_line.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <thread>

namespace tutti {
namespace {

// Whether the thread has been bound to the processor on which the caller runs.
bool Bind(pthread_t thread, int processor) {
  cpu_set_t processors;
  CPU_ZERO(&processors);
  CPU_SET(static_cast<std::size_t>(processor), &processors);
  return pthread_setaffinity_np(thread, sizeof(processors), &processors) == 0;
}

// Two threads that are always busy, bound to one processor: each stands in line while the other one runs.
TEST(ProcessorLineTest, GrowsWhileAnotherThreadHasTheProcessor) {
  std::thread measured([] {
    const ProcessorLine line;
    const std::int64_t begin = line.Nanos();
    if (begin < 0) GTEST_SKIP() << "the kernel does not tell";
    const int processor = sched_getcpu();
    ASSERT_TRUE(Bind(pthread_self(), processor));
    std::atomic<bool> is_over = false;
    std::thread other([&] {
      while (!is_over.load(std::memory_order_relaxed)) {
      }
    });
    const bool bound = Bind(other.native_handle(), processor);
    while (bound && line.Nanos() == begin) {
    }
    is_over = true;
    other.join();
    EXPECT_TRUE(bound);
  });
  measured.join();
}

}  // namespace
}  // namespace tutti
