// Children that a test forks from a process with threads, where sanitizers watch both processes.
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <memory>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/unique_fd.h"

namespace tutti {
namespace {

const pid_t kProcess = getpid();

// Whether thread `id` of this process waits for something or has ended.
bool Rests(pid_t id) {
  const UniqueFd file(::open(absl::StrCat("/proc/self/task/", id, "/stat").c_str(), O_RDONLY | O_CLOEXEC));
  char text[256];
  const ssize_t length = file.valid() ? ::read(file.get(), text, sizeof(text)) : 0;
  if (length <= 0) return true;
  // The state stands behind the thread's name, which may itself have parentheses.
  const absl::string_view line(text, static_cast<std::size_t>(length));
  const std::size_t name_end = line.rfind(')');
  return name_end != absl::string_view::npos && name_end + 2 < line.size() && line[name_end + 2] != 'R';
}

bool OthersRest() {
  const std::unique_ptr<DIR, int (*)(DIR*)> threads(::opendir("/proc/self/task"), &::closedir);
  if (threads == nullptr) return true;
  while (const dirent* const thread = ::readdir(threads.get())) {
    pid_t id = 0;
    if (absl::SimpleAtoi(thread->d_name, &id) && id != ::gettid() && !Rests(id)) return false;
  }
  return true;
}

// AddressSanitizer's allocator in GCC 12 has locks that fork() does not release in the child: a child that is forked
// while another thread allocates waits forever when it allocates itself. A fork therefore waits until all other
// threads sleep, for a second at most. A thread that wakes just then is not noticed.
void AwaitRest() {
  for (const absl::Time end = absl::Now() + absl::Seconds(1); !OthersRest() && absl::Now() < end;) {
    absl::SleepFor(absl::Microseconds(100));
  }
}

[[maybe_unused]] const int kRegistered = ::pthread_atfork(AwaitRest, nullptr, nullptr);

}  // namespace
}  // namespace tutti

// LeakSanitizer calls this function when a process ends. A child holds memory to which only the stacks of its parent's
// threads pointed, and which LeakSanitizer would call leaked: leaks are looked for only in the process that ran main.
extern "C" __attribute__((visibility("default"))) int __lsan_is_turned_off() {  // NOLINT: the sanitizer's name
  return getpid() != tutti::kProcess ? 1 : 0;
}
