#include "base/processor_line.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <charconv>

#include "absl/strings/string_view.h"

namespace tutti {

ProcessorLine::ProcessorLine() : file_(::open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC)) {}
ProcessorLine::~ProcessorLine() {
  if (file_ >= 0) ::close(file_);
}

// The file has three numbers: nanoseconds on a processor, nanoseconds in line for one, and how often the thread ran.
std::int64_t ProcessorLine::Nanos() const {
  std::array<char, 96> buffer;
  const ssize_t bytes = file_ >= 0 ? ::pread(file_, buffer.data(), buffer.size(), 0) : -1;
  if (bytes <= 0) return -1;
  absl::string_view text(buffer.data(), static_cast<std::size_t>(bytes));
  const std::size_t first_end = text.find(' ');
  if (first_end == absl::string_view::npos) return -1;
  text.remove_prefix(first_end + 1);
  std::int64_t nanos = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), nanos);
  // A kernel that does not count writes zeros. A thread that reads this has run at least once.
  const auto left = static_cast<std::size_t>(text.data() + text.size() - end);
  const bool counts = error == std::errc() && left > 1 && absl::string_view(end, 2) != " 0";
  return counts ? nanos : -1;
}

}  // namespace tutti
