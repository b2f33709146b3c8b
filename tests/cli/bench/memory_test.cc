#include "bindings/cli/bench/memory.h"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <ios>
#include <sstream>
#include <string>

#include "gtest/gtest.h"
#include "tests/harness/world.h"

namespace tutti::cli {
namespace {

// Whether the kernel is to have the memory at an address on large pages.
bool IsForLargePages(const void* address) {
  const auto wanted = reinterpret_cast<std::uintptr_t>(address);
  std::ifstream maps("/proc/self/smaps");
  bool is_here = false;
  for (std::string line; std::getline(maps, line);) {
    std::istringstream words(line);
    std::uintptr_t begin = 0, end = 0;
    char dash = 0;
    if (words >> std::hex >> begin >> dash >> end && dash == '-') is_here = begin <= wanted && wanted < end;
    if (is_here && line.compare(0, 8, "VmFlags:") == 0) return line.find(" hg") != std::string::npos;
  }
  return false;
}

// As the buffers of bench/peers/mpi_collectives.c are.
TEST(BenchMemoryTest, LargeBuffersInOrdinaryMemoryAreForLargePages) {
  if (!std::filesystem::exists("/sys/kernel/mm/transparent_hugepage")) GTEST_SKIP() << "a kernel without large pages";
  RunWorld(1, [](Communicator& world) {
    BenchOptions options;
    options.buffers = "private";
    for (const std::int64_t bytes : {1 << 20, 2 << 20, 3 << 20}) {
      const absl::StatusOr<Traffic> traffic = MakeBenchTraffic("all_reduce", {}, bytes, 0, 1);
      ASSERT_TRUE(traffic.ok()) << traffic.status();
      const absl::StatusOr<BenchMemory> memory = BenchMemory::Allocate(world, options, *traffic);
      ASSERT_TRUE(memory.ok()) << memory.status();
      EXPECT_EQ(IsForLargePages(memory->input(*traffic)), bytes >= 2 << 20) << bytes;
    }
  });
}

// The size of the call decides, and neither that of the rank's own buffers nor that of the largest call.
TEST(BenchMemoryTest, TheSizeOfACallDecidesWhichPagesItHas) {
  if (!std::filesystem::exists("/sys/kernel/mm/transparent_hugepage")) GTEST_SKIP() << "a kernel without large pages";
  RunWorld(1, [](Communicator& world) {
    BenchOptions options;
    options.buffers = "private";
    options.min_bytes = 4;
    const auto traffic_of = [](std::int64_t bytes) {
      return MakeBenchTraffic("gather", {.in_place = false}, bytes, /*rank=*/1, /*size=*/8).value();
    };
    const absl::StatusOr<BenchMemory> memory = BenchMemory::Allocate(world, options, traffic_of(4 << 20));
    ASSERT_TRUE(memory.ok()) << memory.status();
    EXPECT_TRUE(IsForLargePages(memory->input(traffic_of(4 << 20)))) << "a block of 512 KB";
    EXPECT_FALSE(IsForLargePages(memory->input(traffic_of(1 << 20))));
  });
}

}  // namespace
}  // namespace tutti::cli
