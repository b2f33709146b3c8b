#include "memory/shared_region.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/descriptors.h"
#include "tutti/rounding.h"

namespace tutti {
namespace {

absl::Status CannotHave(absl::string_view what, std::int64_t bytes) {
  const int error = errno;
  const std::string refused = absl::StrCat("region of ", bytes, " bytes: ", what);
  if (error == ENOMEM || error == EINVAL || error == EFBIG) {
    return absl::ResourceExhaustedError(absl::StrCat(refused, ": ", std::strerror(error),
                                                     "; lower TUTTI_ARENA_BYTES (region_bytes) or raise ulimit -v"));
  }
  if (absl::Status shortage = CheckShortage(error, refused); !shortage.ok()) return shortage;
  return absl::ErrnoToStatus(error, refused);  // such as that of a sandbox, for which no size is small enough
}

// The kernel ends a process, by SIGXFSZ, that makes a file longer than the process may: the limit is looked at before.
absl::Status CheckFileSizeLimit(std::int64_t bytes) {
  rlimit limit = {};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || static_cast<rlim_t>(bytes) <= limit.rlim_cur) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("region of ", bytes, " bytes: files of this process may have ",
                                                   limit.rlim_cur,
                                                   " bytes at most (RLIMIT_FSIZE); raise ulimit -f or "
                                                   "lower TUTTI_ARENA_BYTES (region_bytes)"));
}

absl::Status NoMemoryToSeclude(std::int64_t bytes) {
  return absl::ResourceExhaustedError(absl::StrCat("taking ", bytes, " bytes of the region out of the peers' reach: ",
                                                   absl::ErrnoToStatus(errno, "a copy").message()));
}

absl::Status CheckSize(std::int64_t bytes) {
  if (bytes >= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("TUTTI_ARENA_BYTES (region_bytes) = ", bytes, "; must be at least 1"));
}

constexpr std::int64_t kLargePage = std::int64_t{2} << 20;

std::byte* NextLargePage(void* address) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  return static_cast<std::byte*>(address) + (kLargePage - at % kLargePage) % kLargePage;
}

// Maps `fd` at an address where a large page can begin: equal offsets can then be on large pages in every process.
absl::StatusOr<Mapping> Map(int fd, int flags, std::int64_t bytes) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t size = RoundUp(static_cast<std::size_t>(bytes), page);
  void* const space = mmap(nullptr, size + kLargePage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (space == MAP_FAILED) return CannotHave("mmap", bytes);
  std::byte* const base = NextLargePage(space);
  const auto before = static_cast<std::size_t>(base - static_cast<std::byte*>(space));
  if (before > 0) munmap(space, before);
  munmap(base + size, kLargePage - before);  // never 0 bytes: the next large page is less than one away
  Mapping mapping(base, bytes);
  if (mmap(base, size, PROT_READ | PROT_WRITE, flags | MAP_FIXED | MAP_NORESERVE, fd, 0) == MAP_FAILED) {
    return CannotHave("mmap", bytes);
  }
  return mapping;
}

}  // namespace

Mapping::Mapping(Mapping&& other) noexcept
    : base_(std::exchange(other.base_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(base_, other.base_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Mapping::~Mapping() {
  if (base_ != nullptr) munmap(base_, static_cast<std::size_t>(bytes_));
}

void PreferLargePages(std::byte* data, std::int64_t bytes) {
  constexpr int kCollapse = 25;  // MADV_COLLAPSE of Linux 6.1, which the headers of Debian 12 do not have
  std::byte* const begin = NextLargePage(data);
  const std::int64_t size = (data + bytes - begin) / kLargePage * kLargePage;
  if (size <= 0) return;
  // Pages stay small where the kernel has no large pages, or may not use them.
  if (madvise(begin, static_cast<std::size_t>(size), MADV_HUGEPAGE) != 0) return;
  // Pages that were never touched cannot be collapsed.
  for (volatile std::byte* page = begin; page < begin + size; page += kLargePage) *page = std::byte{0};
  (void)madvise(begin, static_cast<std::size_t>(size), kCollapse);
}

absl::StatusOr<Mapping> MapPrivateRegion(std::int64_t bytes) {
  if (absl::Status size = CheckSize(bytes); !size.ok()) return size;
  return Map(-1, MAP_PRIVATE | MAP_ANONYMOUS, bytes);
}

absl::StatusOr<SharedRegion> CreateSharedRegion(std::int64_t bytes) {
  if (absl::Status size = CheckSize(bytes); !size.ok()) return size;
  if (absl::Status limit = CheckFileSizeLimit(bytes); !limit.ok()) return limit;
  UniqueFd fd(memfd_create("tutti-region", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return CannotHave("memfd_create", bytes);
  if (ftruncate(fd.get(), bytes) != 0) return CannotHave("ftruncate", bytes);
  if (fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) return CannotHave("seal", bytes);
  absl::StatusOr<Mapping> mapping = Map(fd.get(), MAP_SHARED, bytes);
  if (!mapping.ok()) return mapping.status();
  return SharedRegion{std::move(fd), *std::move(mapping)};
}

absl::StatusOr<Mapping> MapSharedRegion(int fd, std::int64_t bytes) {
  if (absl::Status size = CheckSize(bytes); !size.ok()) return size;
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return absl::InvalidArgumentError("region: the descriptor is not a memory file whose size is sealed");
  }
  struct stat info = {};
  if (fstat(fd, &info) != 0 || info.st_size != bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("region holds ", info.st_size, " bytes, must hold the announced ", bytes));
  }
  return Map(fd, MAP_SHARED, bytes);
}

absl::StatusOr<absl::Span<std::byte>> Seclude(std::byte* data, std::int64_t bytes) {
  if (bytes <= 0) return absl::Span<std::byte>();
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
  const std::uintptr_t begin = reinterpret_cast<std::uintptr_t>(data) / page * page;
  const std::uintptr_t end = reinterpret_cast<std::uintptr_t>(data + bytes - 1) / page * page + page;
  const std::size_t size = end - begin;
  auto* const shared = reinterpret_cast<std::byte*>(begin);
  void* const own = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (own == MAP_FAILED) return NoMemoryToSeclude(bytes);
  std::memcpy(own, shared, size);
  if (mremap(own, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, shared) != MAP_FAILED) return absl::MakeSpan(shared, size);
  absl::Status status = NoMemoryToSeclude(bytes);
  munmap(own, size);
  return status;
}

}  // namespace tutti
