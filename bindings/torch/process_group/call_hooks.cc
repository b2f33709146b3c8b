#include "bindings/torch/process_group/call_hooks.h"

#include <utility>

namespace tutti::dist {

void CallHooks::Add(std::int64_t id, Completion hook) {
  const std::lock_guard lock(mutex_);
  completions_[id] = std::move(hook);
  used_ = true;
}

void CallHooks::Add(std::int64_t id, Abort hook) {
  const std::lock_guard lock(mutex_);
  aborts_[id] = std::move(hook);
  used_ = true;
}

void CallHooks::RemoveCompletion(std::int64_t id) {
  const std::lock_guard lock(mutex_);
  completions_.erase(id);
}

void CallHooks::RemoveAbort(std::int64_t id) {
  const std::lock_guard lock(mutex_);
  aborts_.erase(id);
}

template <typename Hook>
std::vector<Hook> CallHooks::All(const std::map<std::int64_t, Hook>& hooks) {
  const std::lock_guard lock(mutex_);
  std::vector<Hook> all;
  for (const auto& [id, hook] : hooks) all.push_back(hook);
  return all;
}

void CallHooks::Ended(std::uint64_t key, const absl::Status& status) {
  if (!used_) return;
  if (status.ok()) {
    for (const Completion& hook : All(completions_)) hook(key);
  } else if (absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status)) {
    for (const Abort& hook : All(aborts_)) hook();
  }
}

}  // namespace tutti::dist
