#include "bindings/cli/launch_output.h"

#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"

namespace tutti {
namespace {

// A rank that never ends its line must not fill the launcher's memory.
constexpr std::size_t kMaxLineBytes = 64 << 10;

}  // namespace

LineTagger::LineTagger(Rank rank, std::function<void(absl::string_view)> write)
    : tag_(absl::StrCat("[", rank, "] ")), write_(std::move(write)) {}

void LineTagger::Add(absl::string_view bytes) {
  while (!bytes.empty()) {
    // A progress bar ends its lines with \r.
    const std::size_t end = bytes.find_first_of("\n\r");
    absl::StrAppend(&line_, bytes.substr(0, end));
    const bool ended = end != bytes.npos;
    if (!ended && line_.size() < kMaxLineBytes) return;
    write_(absl::StrCat(tag_, line_, ended ? bytes.substr(end, 1) : "\n"));
    line_.clear();
    bytes.remove_prefix(ended ? end + 1 : bytes.size());
  }
}

void LineTagger::Finish() {
  if (!line_.empty()) write_(absl::StrCat(tag_, line_, "\n"));
  line_.clear();
}

void WriteFully(int fd, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno != EINTR) return;
    if (written > 0) bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

}  // namespace tutti
