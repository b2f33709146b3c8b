#include "store/private_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/unique_fd.h"

namespace tutti {
namespace {

absl::Status Failed(absl::string_view path, absl::string_view what) {
  return absl::UnavailableError(absl::StrCat(path, ": ", what, ": ", std::strerror(errno)));
}

}  // namespace

absl::Status MakePrivateDirectory(absl::string_view path) {
  const std::string name(path);
  if (::mkdir(name.c_str(), 0700) != 0 && errno != EEXIST) return Failed(path, "cannot make the directory");
  struct stat info;
  if (::lstat(name.c_str(), &info) != 0) return Failed(path, "cannot look at the directory");
  if (!S_ISDIR(info.st_mode)) return absl::InvalidArgumentError(absl::StrCat(path, " is no directory"));
  if (info.st_uid != ::geteuid()) {
    return absl::PermissionDeniedError(absl::StrCat("directory ", path, " belongs to user id ", info.st_uid));
  }
  if ((info.st_mode & 022) != 0) {
    return absl::PermissionDeniedError(absl::StrCat("directory ", path, " can be written by others; chmod 700 it"));
  }
  return absl::OkStatus();
}

absl::Status WritePrivateFile(const std::string& path, absl::string_view content) {
  static std::atomic<unsigned> counter{0};
  char host[64] = {};
  ::gethostname(host, sizeof(host) - 1);
  const std::string temporary = absl::StrCat(path, "~", host, ".", ::getpid(), ".", counter++);
  ::unlink(temporary.c_str());  // of an earlier process with this id
  UniqueFd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.valid()) return Failed(temporary, "cannot make the file");
  while (!content.empty()) {
    const ssize_t written = ::write(fd.get(), content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      absl::Status status = Failed(temporary, "cannot write");
      ::unlink(temporary.c_str());
      return status;
    }
    content.remove_prefix(static_cast<std::size_t>(written));
  }
  fd.Reset();
  if (::rename(temporary.c_str(), path.c_str()) == 0) return absl::OkStatus();
  absl::Status status = Failed(path, "cannot replace");
  ::unlink(temporary.c_str());
  return status;
}

absl::StatusOr<std::string> ReadPrivateFile(const std::string& path, std::size_t max_bytes) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd.valid() && errno == ENOENT) return absl::NotFoundError(absl::StrCat(path, " does not exist"));
  if (!fd.valid() && errno == ELOOP) return absl::PermissionDeniedError(absl::StrCat(path, " is a link"));
  if (!fd.valid()) return Failed(path, "cannot open");
  struct stat info;
  if (::fstat(fd.get(), &info) != 0) return Failed(path, "cannot look at the file");
  if (!S_ISREG(info.st_mode)) return absl::InvalidArgumentError(absl::StrCat(path, " is no regular file"));
  if (info.st_uid != ::geteuid()) {
    return absl::PermissionDeniedError(absl::StrCat("file ", path, " belongs to user id ", info.st_uid));
  }
  if ((info.st_mode & 077) != 0) {
    return absl::PermissionDeniedError(absl::StrCat("file ", path, " can be read by others; chmod 600 it"));
  }
  if (static_cast<std::size_t>(info.st_size) > max_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("file ", path, " has more than ", max_bytes, " bytes"));
  }
  std::string content(static_cast<std::size_t>(info.st_size), '\0');
  std::size_t have = 0;
  while (have < content.size()) {
    const ssize_t got = ::read(fd.get(), content.data() + have, content.size() - have);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Failed(path, "cannot read");
    if (got == 0) break;
    have += static_cast<std::size_t>(got);
  }
  content.resize(have);
  return content;
}

absl::StatusOr<std::string> RuntimeDirectory() {
  const char* base = std::getenv("XDG_RUNTIME_DIR");
  const std::string path =
      base != nullptr && base[0] == '/' ? absl::StrCat(base, "/tutti") : absl::StrCat("/tmp/tutti-", ::geteuid());
  if (absl::Status status = MakePrivateDirectory(path); !status.ok()) return status;
  return path;
}

}  // namespace tutti
