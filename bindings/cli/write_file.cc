#include "bindings/cli/write_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace tutti::cli {
namespace {

absl::Status CannotWrite(const std::string& path) {
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path));
}

// The path from the root, without links and dots in it; empty where that cannot be told.
std::filesystem::path WholePath(const std::string& path) {
  std::error_code unknown;
  // A relative path alone would stay relative where its first part does not exist.
  const std::filesystem::path absolute = std::filesystem::absolute(path, unknown);
  return unknown ? std::filesystem::path() : std::filesystem::weakly_canonical(absolute, unknown);
}

bool IsSameFile(const std::string& one, const std::string& other) {
  if (one == other) return true;
  if (one == "-" || other == "-") return false;  // standard output, and no file of that name
  std::error_code unknown;                       // of files that do not exist
  if (std::filesystem::equivalent(one, other, unknown)) return true;
  const std::filesystem::path whole = WholePath(one);
  return !whole.empty() && whole == WholePath(other);
}

}  // namespace

absl::Status CheckDistinct(const NamedFile& file, const NamedFile& other) {
  if (!IsSameFile(file.path, other.path)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(file.flag, " ", file.path, " is the file of ", other.flag, ", too; name another one"));
}

absl::Status CheckWritable(const std::string& path) {
  int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file >= 0) {
    ::unlink(path.c_str());
  } else if (errno == EEXIST) {
    std::error_code unknown;
    // The reader of a pipe would take a descriptor that is opened and closed without a write for the end of the text.
    if (std::filesystem::is_fifo(path, unknown)) return absl::OkStatus();
    file = ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY);
  }
  if (file < 0) return CannotWrite(path);
  ::close(file);
  return absl::OkStatus();
}

absl::Status WriteFile(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.close();
  if (file) return absl::OkStatus();
  return CannotWrite(path);
}

}  // namespace tutti::cli
