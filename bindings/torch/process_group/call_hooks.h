// What torch (from 2.14 on) wants to hear of the calls of a process group, for its flight recorder.
#ifndef TUTTI_TORCH_PROCESS_GROUP_CALL_HOOKS_H_
#define TUTTI_TORCH_PROCESS_GROUP_CALL_HOOKS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "absl/status/status.h"

namespace tutti::dist {

// The hooks of one process group. Any thread may call its functions; a hook runs on the thread that has found the call
// ended, and no lock of the backend is held.
class CallHooks {
 public:
  using Completion = std::function<void(std::uint64_t key)>;
  using Abort = std::function<void()>;

  void Add(std::int64_t id, Completion hook);
  void Add(std::int64_t id, Abort hook);
  void RemoveCompletion(std::int64_t id);
  void RemoveAbort(std::int64_t id);

  // To be called when the call that torch knows by `key` has ended with `status`. OK runs the completion hooks. An
  // error because a rank died, left or did not come in time runs the abort hooks, which may write to disk. Other
  // errors, such as wrong arguments, run no hook.
  void Ended(std::uint64_t key, const absl::Status& status);

 private:
  template <typename Hook>
  std::vector<Hook> All(const std::map<std::int64_t, Hook>& hooks);

  std::atomic<bool> used_{false};  // whether a hook was ever added: calls of most groups need no lock
  std::mutex mutex_;
  std::map<std::int64_t, Completion> completions_;
  std::map<std::int64_t, Abort> aborts_;
};

}  // namespace tutti::dist

#endif  // TUTTI_TORCH_PROCESS_GROUP_CALL_HOOKS_H_
