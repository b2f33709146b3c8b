#include "transports/ucx/descriptors.h"

#include <fcntl.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/descriptors.h"
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

}  // namespace tutti::ucx
