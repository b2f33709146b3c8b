#include "bindings/cli/launch/output.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace tutti {

LineTagger::LineTagger(Rank rank, std::function<void(absl::string_view)> write)
    : tag_(absl::StrCat("[", rank, "] ")), write_(std::move(write)) {}

void LineTagger::Add(absl::string_view bytes) {
  if (bytes.empty()) return;
  if (std::exchange(after_return_, false) && absl::ConsumePrefix(&bytes, "\n")) write_("\n");
  while (!bytes.empty()) {
    // A progress bar ends its lines with \r, and shows each at once: whether \n follows is not waited for.
    const std::size_t at = std::min(bytes.find_first_of("\n\r"), bytes.size());
    const absl::string_view end = bytes.substr(at, absl::StartsWith(bytes.substr(at), "\r\n") ? 2 : 1);
    absl::StrAppend(&line_, bytes.substr(0, at));
    after_return_ = end == "\r";
    if (end.empty() && line_.size() < kMaxLineBytes) return;
    write_(absl::StrCat(tag_, line_, end.empty() ? "\n" : end));
    line_.clear();
    bytes.remove_prefix(at + end.size());
  }
}

void LineTagger::Finish() {
  if (!line_.empty()) write_(absl::StrCat(tag_, line_, "\n"));
  line_.clear();
}

void Outlet::Add(absl::string_view bytes) {
  if (error_ == 0) absl::StrAppend(&waiting_, bytes);
}

bool Outlet::Write() {
  std::size_t written = 0;
  while (written < waiting_.size()) {
    // The answer of poll holds for PIPE_BUF bytes: a longer write may wait for the reader of a blocking pipe.
    pollfd writable{fd_, POLLOUT, 0};
    if (::poll(&writable, 1, 0) <= 0) break;
    const ssize_t taken =
        ::write(fd_, waiting_.data() + written, std::min(waiting_.size() - written, std::size_t{PIPE_BUF}));
    if (taken < 0 && (errno == EAGAIN || errno == EINTR)) break;
    if (taken < 0) {
      error_ = errno;
      waiting_.clear();
      return written > 0;
    }
    written += static_cast<std::size_t>(taken);
  }
  waiting_.erase(0, written);
  return written > 0;
}

}  // namespace tutti
