#include "base/descriptors.h"

#include <fcntl.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace tutti {

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

absl::Status CheckShortage(int error, absl::string_view what) {
  if (error != EMFILE && error != ENFILE && error != ENOBUFS && error != ENOMEM) return absl::OkStatus();
  const char* const remedy = error == EMFILE   ? "; raise the limit (ulimit -n)"
                             : error == ENFILE ? "; raise the limit of the system (sysctl fs.file-max)"
                                               : "";
  return absl::ResourceExhaustedError(absl::StrCat(what, ": ", std::strerror(error), remedy));
}

}  // namespace tutti
