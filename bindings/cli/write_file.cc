#include "bindings/cli/write_file.h"

#include <cerrno>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace tutti::cli {

absl::Status WriteFile(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.close();
  if (file) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path));
}

}  // namespace tutti::cli
