#include "memory/shared_region.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <iostream>

#include "tests/harness/descriptor_limit.h"
#include "tests/harness/forbidden_memory_files.h"
#include "tests/store/child_process.h"

namespace tutti {
namespace {

TEST(SharedRegion, IsZeroAndSeenThroughEveryMapping) {
  const std::int64_t bytes = std::int64_t{1} << 34;  // address space, not memory
  const absl::StatusOr<SharedRegion> region = CreateSharedRegion(bytes);
  ASSERT_TRUE(region.ok()) << region.status();
  const absl::StatusOr<Mapping> other = MapSharedRegion(region->fd.get(), bytes);
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_NE(other->base(), region->mapping.base());
  EXPECT_EQ(other->base()[bytes - 1], std::byte{0});
  region->mapping.base()[bytes - 1] = std::byte{7};
  EXPECT_EQ(other->base()[bytes - 1], std::byte{7});
}

TEST(SharedRegion, LiesAtTheSamePlaceOfALargePageInEveryMapping) {
  constexpr std::uintptr_t kLargePage = 2 << 20;
  for (const std::int64_t bytes : {std::int64_t{1}, std::int64_t{8192}, std::int64_t{5} << 20}) {
    const absl::StatusOr<SharedRegion> region = CreateSharedRegion(bytes);
    ASSERT_TRUE(region.ok()) << region.status();
    const absl::StatusOr<Mapping> other = MapSharedRegion(region->fd.get(), bytes);
    ASSERT_TRUE(other.ok()) << other.status();
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(region->mapping.base()) % kLargePage, 0u);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(other->base()) % kLargePage, 0u);
  }
}

TEST(SharedRegion, WithoutADescriptorSaysWhatToRaise) {
  const DescriptorLimit none(0);
  const absl::Status status = CreateSharedRegion(4096).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(), "region of 4096 bytes: memfd_create: Too many open files; raise the limit (ulimit -n)");
}

TEST(SharedRegion, ThatASandboxForbidsIsNoQuestionOfSize) {
  ChildProcess process(
      [](const auto& say) { say(ForbidMemoryFiles() ? CreateSharedRegion(4096).status().ToString() : "no filter"); });
  const std::string said = process.NextLine();
  if (said == "no filter") GTEST_SKIP() << "the system has no seccomp";
  EXPECT_EQ(said, "PERMISSION_DENIED: region of 4096 bytes: memfd_create: Operation not permitted");
}

TEST(SharedRegion, KeepsWhatLiesAroundLargePages) {
  constexpr std::int64_t kLargePage = 2 << 20;
  constexpr std::int64_t kBytes = 6 * kLargePage;
  const absl::StatusOr<SharedRegion> region = CreateSharedRegion(kBytes);
  ASSERT_TRUE(region.ok()) << region.status();
  const absl::StatusOr<Mapping> other = MapSharedRegion(region->fd.get(), kBytes);
  ASSERT_TRUE(other.ok()) << other.status();
  std::byte* const base = region->mapping.base();
  std::fill(base, base + kBytes, std::byte{7});
  // The range begins within the first large page and ends within the fifth: three pages lie in it as a whole.
  PreferLargePages(base + 4096, 4 * kLargePage);
  for (std::int64_t i = 0; i < kBytes; ++i) {
    const bool contents_needed = i < 4096 || i >= 4096 + 4 * kLargePage;
    if (contents_needed) {
      ASSERT_EQ(base[i], std::byte{7}) << i;
    }
    base[i] = static_cast<std::byte>(i % 251);
  }
  for (std::int64_t i = 0; i < kBytes; ++i) ASSERT_EQ(other->base()[i], static_cast<std::byte>(i % 251)) << i;
  PreferLargePages(base, kLargePage - 1);  // less than one large page
}

TEST(SharedRegion, WhatIsSecludedLeavesTheOtherMappings) {
  constexpr std::int64_t kPage = 4096;
  constexpr std::int64_t kBytes = 8 * kPage;
  const absl::StatusOr<SharedRegion> region = CreateSharedRegion(kBytes);
  ASSERT_TRUE(region.ok()) << region.status();
  const absl::StatusOr<Mapping> other = MapSharedRegion(region->fd.get(), kBytes);
  ASSERT_TRUE(other.ok()) << other.status();
  std::byte* const base = region->mapping.base();
  for (std::int64_t i = 0; i < kBytes; ++i) base[i] = static_cast<std::byte>(i % 251);
  // The range is the last byte of the third page and the first of the fourth: both pages are secluded as a whole.
  ASSERT_TRUE(Seclude(base + 3 * kPage - 1, 2).ok());
  for (std::int64_t i = 0; i < kBytes; ++i) ASSERT_EQ(base[i], static_cast<std::byte>(i % 251)) << i;
  for (std::int64_t i = 0; i < kBytes; ++i) {
    EXPECT_EQ(other->base()[i], static_cast<std::byte>(i % 251)) << "what peers read there is what it was, at " << i;
    other->base()[i] = std::byte{255};
  }
  for (std::int64_t i = 0; i < kBytes; ++i) {
    const bool secluded = i >= 2 * kPage && i < 4 * kPage;
    ASSERT_EQ(base[i], secluded ? static_cast<std::byte>(i % 251) : std::byte{255}) << i;
  }
  base[2 * kPage] = std::byte{1};
  EXPECT_EQ(other->base()[2 * kPage], std::byte{255});
  EXPECT_TRUE(Seclude(base, 0).ok());
  EXPECT_TRUE(Seclude(base, kBytes).ok());
  EXPECT_EQ(base[2 * kPage], std::byte{1});
}

TEST(SharedRegion, CannotBeShrunkByWhoHoldsIt) {
  const absl::StatusOr<SharedRegion> region = CreateSharedRegion(8192);
  ASSERT_TRUE(region.ok()) << region.status();
  EXPECT_NE(ftruncate(region->fd.get(), 0), 0);
}

TEST(SharedRegion, IsNotMappedWhenItIsNotWhatWasAnnounced) {
  const absl::StatusOr<SharedRegion> region = CreateSharedRegion(8192);
  ASSERT_TRUE(region.ok()) << region.status();
  const absl::Status other_size = MapSharedRegion(region->fd.get(), 4096).status();
  EXPECT_EQ(other_size.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(other_size.message(), "region holds 8192 bytes, must hold the announced 4096");
  const UniqueFd unsealed(memfd_create("unsealed", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(unsealed.get(), 4096), 0);
  EXPECT_EQ(MapSharedRegion(unsealed.get(), 4096).status().code(), absl::StatusCode::kInvalidArgument);
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  EXPECT_EQ(MapSharedRegion(pipe_ends[0], 4096).status().code(), absl::StatusCode::kInvalidArgument);
  close(pipe_ends[0]);
  close(pipe_ends[1]);
}

TEST(SharedRegion, ImpossibleSizesAreErrors) {
  EXPECT_EQ(CreateSharedRegion(0).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CreateSharedRegion(0).status().message(), "TUTTI_ARENA_BYTES (region_bytes) = 0; must be at least 1");
  EXPECT_EQ(MapPrivateRegion(-1).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(MapPrivateRegion(std::int64_t{1} << 60).status().code(), absl::StatusCode::kResourceExhausted);
}

// In a child, because the signal by which the kernel enforces the limit would end the process.
TEST(SharedRegion, ALimitOnTheSizeOfFilesIsNamed) {
  const pid_t child = fork();
  if (child == 0) {
    rlimit limit = {};
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = 8192;
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(1);
    const absl::Status status = CreateSharedRegion(8193).status();
    const absl::Status expected = absl::ResourceExhaustedError(
        "region of 8193 bytes: files of this process may have 8192 bytes at most (RLIMIT_FSIZE); raise ulimit -f or "
        "lower TUTTI_ARENA_BYTES (region_bytes)");
    if (status == expected && CreateSharedRegion(8192).ok() && MapPrivateRegion(8193).ok()) _exit(0);
    std::cerr << status << std::endl;
    _exit(2);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace tutti
