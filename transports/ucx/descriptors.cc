#include "transports/ucx/descriptors.h"

#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "transports/ucx/shared_files.h"

namespace tutti::ucx {
namespace {

void CloseOnExec(int fd) {
  const int flags = fcntl(fd, F_GETFD);
  if (flags >= 0 && (flags & FD_CLOEXEC) == 0) fcntl(fd, F_SETFD, flags | FD_CLOEXEC);
}

std::string TargetOf(int fd) {
  std::error_code gone;
  return std::filesystem::read_symlink(absl::StrCat("/proc/self/fd/", fd), gone).string();
}

bool IsSharedFile(absl::string_view target) { return absl::StrContains(target, absl::StrCat("/", kSharedFileName)); }

bool IsOfAKindThatUcxOpens(int fd) {
  const std::string target = TargetOf(fd);
  return absl::StartsWith(target, "socket:") || absl::StartsWith(target, "pipe:") ||
         absl::StartsWith(target, "anon_inode:") || IsSharedFile(target) || target == "/dev/null";
}

// The descriptors that an epoll descriptor waits for; none for any other descriptor.
std::vector<int> AwaitedBy(int fd) {
  std::vector<int> awaited;
  std::ifstream info(absl::StrCat("/proc/self/fdinfo/", fd));
  for (std::string line; std::getline(info, line);) {
    int target = -1;
    if (std::sscanf(line.c_str(), "tfd: %d", &target) == 1) awaited.push_back(target);
  }
  return awaited;
}

}  // namespace

std::vector<int> OpenDescriptors() {
  std::vector<int> open;
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/proc/self/fd", error), end; !error && entry != end;
       entry.increment(error)) {
    int fd = -1;
    if (absl::SimpleAtoi(entry->path().filename().string(), &fd)) open.push_back(fd);
  }
  // The descriptor through which the list was read is closed by now.
  std::erase_if(open, [](int fd) { return fcntl(fd, F_GETFD) < 0; });
  return open;
}

void CloseOnExecSince(const std::vector<int>& before) {
  for (const int fd : OpenDescriptors()) {
    if (std::find(before.begin(), before.end(), fd) == before.end() && IsOfAKindThatUcxOpens(fd)) CloseOnExec(fd);
  }
}

void CloseOnExecBehind(int epoll) {
  std::vector<int> found = {epoll};
  for (std::size_t i = 0; i < found.size(); ++i) {
    CloseOnExec(found[i]);
    for (const int fd : AwaitedBy(found[i])) {
      if (std::find(found.begin(), found.end(), fd) == found.end()) found.push_back(fd);
    }
  }
}

void CloseSharedFilesOnExec() {
  for (const int fd : OpenDescriptors()) {
    if (IsSharedFile(TargetOf(fd))) CloseOnExec(fd);
  }
}

absl::Status NeedDescriptors(std::size_t count, absl::string_view what) {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return absl::OkStatus();
  // The list of open descriptors is empty when not even a descriptor for reading the list was free.
  const std::vector<int> open = OpenDescriptors();
  const std::size_t used = open.empty() ? limit.rlim_cur : open.size();
  const std::size_t free = limit.rlim_cur > used ? limit.rlim_cur - used : 0;
  if (free >= count) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(what, " needs ", count, " more file descriptors; of the limit of ",
                                                   limit.rlim_cur, ", ", free, " are free: raise it (ulimit -n ",
                                                   limit.rlim_cur + count - free, " or more)"));
}

}  // namespace tutti::ucx
