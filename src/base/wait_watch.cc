#include "base/wait_watch.h"

#include <atomic>

#include "absl/strings/str_cat.h"
#include "tutti/work.h"

namespace tutti {
namespace {

std::atomic<WaitWatch> the_watch{nullptr};

}  // namespace

void SetWaitWatch(WaitWatch watch) { the_watch.store(watch, std::memory_order_release); }

bool WaitsAreWatched() { return the_watch.load(std::memory_order_acquire) != nullptr; }

absl::Status LookWhileWaiting(Rank rank) {
  const WaitWatch watch = the_watch.load(std::memory_order_acquire);
  const absl::Status answer = watch == nullptr ? absl::OkStatus() : watch();
  return answer.ok() ? answer : absl::Status(answer.code(), absl::StrCat("rank ", rank, ": ", answer.message()));
}

}  // namespace tutti
