// Output of several ranks as lines that tell whose they are.
#ifndef TUTTI_BINDINGS_CLI_LAUNCH_OUTPUT_H_
#define TUTTI_BINDINGS_CLI_LAUNCH_OUTPUT_H_

#include <cstddef>
#include <functional>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "tutti/dtype.h"

namespace tutti {

// Cuts what one rank writes into lines and hands them on as "[rank] line\n", each in one call. Lines end with "\n",
// "\r" or "\r\n"; of an "\r\n" that comes in two parts, "\n" is handed on when it comes.
class LineTagger {
 public:
  // A line that has reached this length and has no end is handed on as one line, and what follows as the next: a rank
  // that never ends its line must not fill the launcher's memory.
  static constexpr std::size_t kMaxLineBytes = 1 << 20;

  LineTagger(Rank rank, std::function<void(absl::string_view)> write);
  void Add(absl::string_view bytes);
  // Hands on a last line that has no end.
  void Finish();

 private:
  const std::string tag_;
  const std::function<void(absl::string_view)> write_;
  std::string line_;
  bool after_return_ = false;  // the last byte ended a line, and was "\r"
};

// Text on its way to a descriptor of any kind: the descriptor may be non-blocking, and its reader slow or gone. Text is
// lost only by an error, and no call waits for the reader. (A terminal may hold a Write back until the terminal has
// taken the few thousand bytes of one write.)
class Outlet {
 public:
  explicit Outlet(int fd) : fd_(fd) {}
  Outlet(const Outlet&) = delete;
  Outlet& operator=(const Outlet&) = delete;

  int fd() const { return fd_; }
  // Puts `bytes` behind the text that waits; after an error `bytes` are dropped. The text that waits takes memory
  // without limit, unless the caller adds only while nothing waits.
  void Add(absl::string_view bytes);
  // Writes as much as the reader takes without a wait. Returns whether any byte was written; after an error, none is.
  bool Write();
  // Bytes that have not been written.
  std::size_t waiting() const { return waiting_.size(); }
  // errno of the write that failed, EPIPE when the reader is gone; 0 when none did.
  int error() const { return error_; }

 private:
  const int fd_;
  std::string waiting_;
  int error_ = 0;
};

}  // namespace tutti

#endif  // TUTTI_BINDINGS_CLI_LAUNCH_OUTPUT_H_
