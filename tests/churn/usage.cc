#include "tests/churn/usage.h"

#include <malloc.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/mutex.h"

namespace tutti::churn {
namespace {

namespace fs = std::filesystem;

std::string ContentOf(const fs::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// The number after `field` of /proc/self/status.
std::int64_t StatusField(const std::string& status, const std::string& field) {
  const std::size_t at = status.find(field);
  return at == std::string::npos ? 0 : std::strtoll(status.c_str() + at + field.size(), nullptr, 10);
}

// Whether a living process has mapped the file. A file that another program uses is no leak of the churn.
bool MappedBySomebody(const std::string& path) {
  std::error_code gone;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc", gone)) {
    if (!std::isdigit(static_cast<unsigned char>(entry.path().filename().string()[0]))) continue;
    if (ContentOf(entry.path() / "maps").find(path) != std::string::npos) return true;
  }
  return false;
}

}  // namespace

Usage OwnUsage() {
  // Ranks that are threads look one after the other: no rank may count the descriptor with which another one looks.
  static Mutex one_looks;
  const MutexLock lock(one_looks);
  const std::string status = ContentOf("/proc/self/status");
  const struct mallinfo2 heap = mallinfo2();
  Usage usage = {.threads = StatusField(status, "Threads:"),
                 .heap_bytes = static_cast<std::int64_t>(heap.uordblks + heap.hblkhd)};
  for ([[maybe_unused]] const fs::directory_entry& entry : fs::directory_iterator("/proc/self/fd")) ++usage.descriptors;
  return usage;
}

std::int64_t LargestFreePiece(Communicator& communicator) {
  // The request is larger than any arena, so that it fails with an error that names the largest free piece.
  const std::string text(communicator.Allocate(std::int64_t{1} << 50).status().message());
  static constexpr char kBefore[] = "largest free piece has ";
  const std::size_t at = text.find(kBefore);
  return at == std::string::npos ? -1 : std::strtoll(text.c_str() + at + sizeof(kBefore) - 1, nullptr, 10);
}

SharedMemory SharedMemory::Now() {
  SharedMemory now;
  std::error_code gone;
  for (const fs::directory_entry& entry : fs::directory_iterator("/dev/shm", gone)) {
    if (!entry.is_directory(gone)) now.files_.insert(entry.path().string());
  }
  std::ifstream table("/proc/sysvipc/shm");
  std::string line;
  std::getline(table, line);  // the names of the columns
  while (std::getline(table, line)) {
    std::istringstream row(line);
    std::int64_t key = 0;
    std::int64_t id = 0;
    std::int64_t mode = 0;
    std::int64_t size = 0;
    pid_t creator = 0;
    if (row >> key >> id >> mode >> size >> creator) now.segments_.insert({id, creator});
  }
  return now;
}

std::string SharedMemory::LeftBehind(const SharedMemory& before, const std::vector<pid_t>& dead) {
  std::string left;
  for (int look = 0; look < 100; ++look) {
    left = Now().NewSince(before, dead);
    if (left.empty()) return left;
    absl::SleepFor(absl::Milliseconds(20));
  }
  return left;
}

std::string SharedMemory::NewSince(const SharedMemory& before, const std::vector<pid_t>& dead) const {
  std::string left;
  for (const std::string& file : files_) {
    if (before.files_.count(file) == 0 && !MappedBySomebody(file)) {
      absl::StrAppend(&left, " ", file);
    }
  }
  for (const Segment& segment : segments_) {
    const bool ours = std::find(dead.begin(), dead.end(), segment.creator) != dead.end();
    if (ours && before.segments_.count(segment) == 0) absl::StrAppend(&left, " System V segment ", segment.id);
  }
  return left;
}

}  // namespace tutti::churn
