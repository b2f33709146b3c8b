// A progress bar: redrawn in place on a terminal, a line per tenth of the way anywhere else.
#ifndef DOCS_EXAMPLES_PROGRESS_H_
#define DOCS_EXAMPLES_PROGRESS_H_

#include <chrono>
#include <string>

// Not thread-safe; writes to standard output.
class Progress {
 public:
  // A silent bar, for the ranks that are not asked to report, has `total` 0.
  Progress(std::string label, long total);

  // `done` of `total` steps have been made; `details` follows the bar.
  void Update(long done, const std::string& details);

 private:
  const std::string label_;
  const long total_;
  const bool terminal_;
  long tenths_shown_ = 0;
  std::chrono::steady_clock::time_point drawn_;
};

#endif  // DOCS_EXAMPLES_PROGRESS_H_
