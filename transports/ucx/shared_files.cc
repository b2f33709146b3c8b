#include "transports/ucx/shared_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace tutti::ucx {
namespace {

// The age from which a file is removed: a process that is stopped for longer while it makes its file then fails to set
// up its transport.
constexpr absl::Duration kRubbish = absl::Minutes(1);

bool IsPrivateDirectory(const std::string& path) {
  struct stat info;
  return ::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == ::geteuid() &&
         (info.st_mode & 077) == 0;
}

}  // namespace

std::string DirectoryOfSharedFiles() {
  std::string directory = absl::StrCat(kSharedFilesPrefix, ::geteuid());
  if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) return "";
  if (!IsPrivateDirectory(directory)) return "";
  SweepSharedFiles(directory, kRubbish);
  return directory;
}

void SweepSharedFiles(const std::string& directory, absl::Duration age) {
  const absl::Time newest = absl::Now() - age;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(directory, ignored)) {
    const std::string& path = entry.path().native();
    struct stat info;
    if (!absl::StartsWith(entry.path().filename().native(), kSharedFileName) || ::lstat(path.c_str(), &info) != 0 ||
        !S_ISREG(info.st_mode)) {
      continue;
    }
    if (absl::TimeFromTimespec(info.st_mtim) <= newest) ::unlink(path.c_str());
  }
}

}  // namespace tutti::ucx
