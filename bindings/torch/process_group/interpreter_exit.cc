#include "bindings/torch/process_group/interpreter_exit.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bindings/torch/process_group/interrupt.h"

namespace tutti::dist {
namespace {

struct LiveGroups {
  std::mutex mutex;
  std::map<const void*, std::shared_ptr<Tracked>> groups;  // by their owners
  const pid_t process = getpid();
};

// The live groups of this process. Never destroyed: groups may end after static objects have been destroyed. A forked
// child leaves the groups of its parent alone, whose mutex another thread may have held at the fork.
LiveGroups& AllLiveGroups() {
  static std::atomic<LiveGroups*> groups = new LiveGroups;
  LiveGroups* known = groups.load();
  if (known->process == getpid()) return *known;
  auto* const own = new LiveGroups;
  if (groups.compare_exchange_strong(known, own)) return *own;
  delete own;
  return *known;
}

// The live groups at this moment: a group that ends takes the mutex.
std::map<const void*, std::shared_ptr<Tracked>> Copied(LiveGroups& live) {
  const std::lock_guard lock(live.mutex);
  return live.groups;
}

// The time that the interpreter leaves a thread that has just left a call of a group to take the interpreter's lock.
// The thread then runs Python, and ends in order; one that came for the lock later would end the process.
constexpr std::chrono::milliseconds kTimeToTakeTheLock{50};

std::atomic<bool> interpreter_ends{false};
std::atomic<bool> other_threads_call{false};  // a thread other than the main one has called a group
std::thread::id main_thread;                  // set before interpreter_ends
thread_local int callbacks_of_this_thread = 0;

}  // namespace

void EndAllGroups() {
  main_thread = std::this_thread::get_id();
  interpreter_ends = true;
  for (const auto& [owner, group] : Copied(AllLiveGroups())) group->End();
  if (other_threads_call) std::this_thread::sleep_for(kTimeToTakeTheLock);
}

void AbortAllGroups(const std::string& reason) {
  for (const auto& [owner, group] : Copied(AllLiveGroups())) group->Abort(reason);
}

void Track(const void* owner, std::shared_ptr<Tracked> group) {
  LiveGroups& live = AllLiveGroups();
  const std::lock_guard lock(live.mutex);
  live.groups[owner] = std::move(group);
}

void Untrack(const void* owner) {
  LiveGroups& live = AllLiveGroups();
  const std::lock_guard lock(live.mutex);
  live.groups.erase(owner);
}

absl::Status InterpreterEnds(int rank) {
  return absl::AbortedError(absl::StrCat("the Python program of rank ", rank, " ended while a thread was in a call"));
}

void StayIfInterpreterEnds() {
  static thread_local const bool is_main = gettid() == getpid();
  if (!is_main && callbacks_of_this_thread == 0 && !other_threads_call) other_threads_call = true;
  if (!interpreter_ends || callbacks_of_this_thread > 0 || std::this_thread::get_id() == main_thread) return;
  // The lock, if this thread has it, is missed by the thread that ends the interpreter.
  const WithoutInterpreterLock without_lock;
  while (true) pause();
}

Callback::Callback() { ++callbacks_of_this_thread; }
Callback::~Callback() { --callbacks_of_this_thread; }

}  // namespace tutti::dist
