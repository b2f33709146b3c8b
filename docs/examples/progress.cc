#include "docs/examples/progress.h"

#include <unistd.h>

#include <cstdio>
#include <utility>

Progress::Progress(std::string label, long total)
    : label_(std::move(label)), total_(total), terminal_(isatty(STDOUT_FILENO) != 0) {}

void Progress::Update(long done, const std::string& details) {
  if (total_ == 0) return;
  const auto now = std::chrono::steady_clock::now();
  const long tenths = 10 * done / total_;
  if (terminal_) {
    if (now - drawn_ < std::chrono::milliseconds(100) && done < total_) return;
    constexpr int kWidth = 24;
    const int filled = static_cast<int>(kWidth * done / total_);
    const std::string bar = std::string(filled, '#') + std::string(kWidth - filled, '.');
    std::printf("\r%s [%s] %s\x1b[K%s", label_.c_str(), bar.c_str(), details.c_str(), done == total_ ? "\n" : "");
  } else {
    if (tenths == tenths_shown_) return;
    std::printf("%s %3ld %% %s\n", label_.c_str(), 10 * tenths, details.c_str());
  }
  tenths_shown_ = tenths;
  drawn_ = now;
  std::fflush(stdout);
}
