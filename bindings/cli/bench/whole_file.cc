#include "bindings/cli/bench/whole_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace tutti::cli {

WholeFile::WholeFile(const std::string& path)
    : path_(path),
      file_(path == "-" ? STDOUT_FILENO
                        : ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY, 0666)) {
  if (file_ < 0) status_ = Error("cannot write ");
  struct stat kind = {};
  rewinds_ = file_ >= 0 && file_ != STDOUT_FILENO && ::fstat(file_, &kind) == 0 && S_ISREG(kind.st_mode);
}

WholeFile::~WholeFile() {
  if (file_ >= 0 && file_ != STDOUT_FILENO) ::close(file_);
}

void WholeFile::ReplaceEnd(absl::string_view text, absl::string_view end) {
  if (!status_.ok()) return;
  const auto length = kept_ + static_cast<off_t>(text.size() + end.size());
  const bool shrinks = length < kept_ + static_cast<off_t>(end_.size());
  if (!WriteAt(kept_, absl::StrCat(text, end)) || (shrinks && ::ftruncate(file_, length) != 0)) {
    status_ = Error("cannot write ");
    if (rewinds_ && !TakeBack()) {
      status_ = absl::Status(status_.code(),
                             absl::StrCat(status_.message(), "; ", Error("cannot restore what was in ").message()));
    }
    return;
  }
  kept_ += static_cast<off_t>(text.size());
  end_ = std::string(end);
}

absl::Status WholeFile::Finish() {
  if (file_ >= 0 && file_ != STDOUT_FILENO) {
    if (::close(file_) != 0 && status_.ok()) status_ = Error("cannot write ");
    file_ = -1;
  }
  return status_;
}

void WholeFile::Remove() {
  if (!rewinds_) return;
  std::error_code unknown;  // of a file that somebody else has removed
  std::filesystem::remove(std::filesystem::canonical(path_, unknown), unknown);  // behind a link: the file
}

bool WholeFile::WriteAt(off_t place, absl::string_view text) {
  // The command looks at the state of this stream when it ends.
  if (file_ == STDOUT_FILENO) {
    return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  }
  while (!text.empty()) {
    const ssize_t written =
        rewinds_ ? ::pwrite(file_, text.data(), text.size(), place) : ::write(file_, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return false;
    text.remove_prefix(static_cast<std::size_t>(written));
    place += written;
  }
  return true;
}

// The bytes of the end lie where the disk has given room to them.
bool WholeFile::TakeBack() {
  return WriteAt(kept_, end_) && ::ftruncate(file_, kept_ + static_cast<off_t>(end_.size())) == 0;
}

absl::Status WholeFile::Error(absl::string_view what) const {
  const int error = errno;
  return absl::ErrnoToStatus(error,
                             path_ == "-" ? absl::StrCat(what, "to standard output") : absl::StrCat(what, path_));
}

}  // namespace tutti::cli
