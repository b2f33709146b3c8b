// A file that is whole after every change, also when a disk is full.
#ifndef TUTTI_BINDINGS_CLI_BENCH_WHOLE_FILE_H_
#define TUTTI_BINDINGS_CLI_BENCH_WHOLE_FILE_H_

#include <sys/types.h>

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace tutti::cli {

// A text that grows, and whose end may be replaced. A change that fails is taken back, so that the file has what it had
// before, and the file takes no further change. What went into a pipe, a device or standard output stays there.
class WholeFile {
 public:
  // Creates the file anew; "-" is standard output.
  explicit WholeFile(const std::string& path);
  ~WholeFile();
  WholeFile(const WholeFile&) = delete;
  WholeFile& operator=(const WholeFile&) = delete;

  // Whether the end can be replaced: in a regular file that is not standard output. Elsewhere `end` must be empty.
  bool rewinds() const { return rewinds_; }
  // `text` and `end` take the place of the end that the last change has given.
  void ReplaceEnd(absl::string_view text, absl::string_view end);

  // The first error, which names the file and the system's reason.
  const absl::Status& status() const { return status_; }
  // Closes the file, and returns the status.
  absl::Status Finish();
  // Removes a regular file.
  void Remove();

 private:
  // Writes after the first `place` bytes.
  bool WriteAt(off_t place, absl::string_view text);
  bool TakeBack();
  absl::Status Error(absl::string_view what) const;

  const std::string path_;
  int file_;
  bool rewinds_ = false;
  off_t kept_ = 0;   // the bytes before the end
  std::string end_;  // the end, which the next change replaces
  absl::Status status_;
};

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_BENCH_WHOLE_FILE_H_
