#include "bindings/cli/read_file.h"

#include <cerrno>
#include <fstream>
#include <iterator>
#include <vector>

#include "absl/strings/str_cat.h"

namespace tutti::cli {

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string bytes;
  std::vector<char> part(1 << 20);
  // The stream opens a directory, too: read() then fails, where an iterator over the stream's buffer would throw.
  while (file.read(part.data(), std::ssize(part)) || file.gcount() > 0) {
    bytes.append(part.data(), static_cast<std::size_t>(file.gcount()));
  }
  if (!file.is_open() || file.bad()) return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path));
  return bytes;
}

}  // namespace tutti::cli
