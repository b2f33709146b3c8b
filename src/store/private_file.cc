#include "store/private_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/host_name.h"
#include "base/unique_fd.h"

namespace tutti {
namespace {

absl::Status Failed(absl::string_view path, absl::string_view what) {
  return absl::UnavailableError(absl::StrCat(path, ": ", what, ": ", std::strerror(errno)));
}

// The character between a file's name and its writer's in the name of a half-written file: "job~host.4711.0".
constexpr char kWriting = '~';

// A lock of a whole open file: unlike the lock of a process, such a lock also keeps two handles of one process apart.
struct flock WholeFile() {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

absl::Status Lock(int fd, absl::string_view path) {
  struct flock lock = WholeFile();
  while (::fcntl(fd, F_OFD_SETLK, &lock) != 0) {
    if (errno == EINTR) continue;
    return absl::UnimplementedError(absl::StrCat(path, ": cannot lock the file: ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

absl::Status WriteAll(int fd, absl::string_view content, absl::string_view path) {
  while (!content.empty()) {
    const ssize_t written = ::write(fd, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Failed(path, "cannot write");
    content.remove_prefix(static_cast<std::size_t>(written));
  }
  return absl::OkStatus();
}

// Writes the file and returns it open. With `hold` the file is locked before anybody can see it under its name.
absl::StatusOr<UnsharedFd> Write(const std::string& path, absl::string_view content, bool hold) {
  static std::atomic<unsigned> counter{0};
  const std::string temporary =
      absl::StrCat(path, absl::string_view(&kWriting, 1), HostName(), ".", ::getpid(), ".", counter++);
  ::unlink(temporary.c_str());  // the file may have been left by an earlier process with this id
  UnsharedFd fd(UniqueFd(::open(temporary.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600)));
  if (!fd.valid()) return Failed(temporary, "cannot make the file");
  absl::Status status = hold ? Lock(fd.get(), temporary) : absl::OkStatus();
  if (status.ok()) status = WriteAll(fd.get(), content, temporary);
  if (status.ok() && ::rename(temporary.c_str(), path.c_str()) != 0) status = Failed(path, "cannot replace");
  if (status.ok()) return fd;
  ::unlink(temporary.c_str());
  return status;
}

// Whether the writer of a half-written file is dead: for "job~host.4711.0", process 4711 of this host.
bool WriterIsDead(absl::string_view name) {
  const absl::string_view writer = name.substr(name.find(kWriting) + 1);
  const std::size_t last = writer.rfind('.');
  const std::size_t first = last == writer.npos || last == 0 ? writer.npos : writer.rfind('.', last - 1);
  pid_t pid = 0;
  if (first == writer.npos || writer.substr(0, first) != HostName() ||
      !absl::SimpleAtoi(writer.substr(first + 1, last - first - 1), &pid) || pid <= 0) {
    return false;
  }
  return ::kill(pid, 0) != 0 && errno == ESRCH;
}

}  // namespace

absl::Status CheckPrivateDirectory(absl::string_view path) {
  struct stat info;
  if (::lstat(std::string(path).c_str(), &info) != 0) {
    if (errno == ENOENT) return absl::NotFoundError(absl::StrCat("directory ", path, " does not exist"));
    return Failed(path, "cannot look at the directory");
  }
  if (!S_ISDIR(info.st_mode)) return absl::InvalidArgumentError(absl::StrCat(path, " is no directory"));
  if (info.st_uid != ::geteuid()) {
    return absl::PermissionDeniedError(absl::StrCat("directory ", path, " belongs to user id ", info.st_uid,
                                                    ", must belong to user id ", ::geteuid()));
  }
  if ((info.st_mode & 022) != 0) {
    return absl::PermissionDeniedError(absl::StrCat("directory ", path, " can be written by others; chmod 700 it"));
  }
  return absl::OkStatus();
}

absl::Status MakePrivateDirectory(absl::string_view path) {
  if (::mkdir(std::string(path).c_str(), 0700) != 0 && errno != EEXIST) {
    return Failed(path, "cannot make the directory");
  }
  return CheckPrivateDirectory(path);
}

absl::Status WritePrivateFile(const std::string& path, absl::string_view content) {
  return Write(path, content, /*hold=*/false).status();
}

absl::StatusOr<UnsharedFd> HoldPrivateFile(const std::string& path, absl::string_view content) {
  return Write(path, content, /*hold=*/true);
}

absl::StatusOr<bool> IsHeld(const std::string& path) {
  const UniqueFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd.valid() && errno == ENOENT) return absl::NotFoundError(absl::StrCat(path, " does not exist"));
  if (!fd.valid()) return Failed(path, "cannot open");
  struct flock lock = WholeFile();
  if (::fcntl(fd.get(), F_OFD_GETLK, &lock) != 0) return Failed(path, "cannot look at the lock");
  return lock.l_type != F_UNLCK;
}

void RemoveUnlessHeld(const std::string& path) {
  const absl::StatusOr<bool> held = IsHeld(path);
  if (!held.ok() || *held) return;
  // Somebody may put a new file in the place of this one now: so the file is moved away first, looked at again, and put
  // back when it is a new one.
  const std::string aside = absl::StrCat(path, absl::string_view(&kWriting, 1), HostName(), ".", ::getpid(), ".swept");
  if (::rename(path.c_str(), aside.c_str()) != 0) return;
  const absl::StatusOr<bool> still_held = IsHeld(aside);
  if (still_held.ok() && *still_held && ::link(aside.c_str(), path.c_str()) != 0 && errno != EEXIST) {
    ::rename(aside.c_str(), path.c_str());
  }
  ::unlink(aside.c_str());
}

void SweepDirectory(const std::string& directory, absl::FunctionRef<bool(absl::string_view name)> is_ours) {
  std::error_code error;  // what cannot be listed now stays
  for (std::filesystem::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename();
    const std::size_t writing = name.find(kWriting);
    if (!is_ours(absl::string_view(name).substr(0, writing))) continue;
    if (writing == name.npos) {
      RemoveUnlessHeld(entry->path());
    } else if (WriterIsDead(name)) {
      ::unlink(entry->path().c_str());
    }
  }
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
    return absl::PermissionDeniedError(
        absl::StrCat("file ", path, " belongs to user id ", info.st_uid, ", must belong to user id ", ::geteuid()));
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
  // srun and sudo -E hand on the variable where the directory is missing or another user's. The slash makes a link
  // count as its directory.
  const bool has_base = base != nullptr && base[0] == '/' && CheckPrivateDirectory(absl::StrCat(base, "/")).ok();
  const std::string path = has_base ? absl::StrCat(base, "/tutti") : absl::StrCat("/tmp/tutti-", ::geteuid());
  if (absl::Status status = MakePrivateDirectory(path); !status.ok()) {
    return absl::Status(status.code(), absl::StrCat(has_base ? "XDG_RUNTIME_DIR: " : "", status.message()));
  }
  return path;
}

}  // namespace tutti
