// The communicators of a process group: one for the memory of the host, and one for that of a GPU.
#ifndef TUTTI_TORCH_PROCESS_GROUP_MEMBERSHIP_H_
#define TUTTI_TORCH_PROCESS_GROUP_MEMBERSHIP_H_

#include <unistd.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "bindings/torch/process_group/interpreter_exit.h"
#include "tutti/communicator.h"

namespace tutti::dist {

// The communicators of one process group, until the group is left. That for the GPU is made for the group's first call
// on a GPU, so that a program which computes on the CPU alone never asks for one. Thread-safe. A forked child takes no
// mutex, as a thread that does not exist there may have held it at the fork: the child gets the parent's communicators,
// whose calls are errors there, and leaves them alone.
class Membership : public Tracked {
 public:
  explicit Membership(std::shared_ptr<Communicator> on_host) : on_host_(std::move(on_host)) {}

  // Null once the group was left.
  std::shared_ptr<Communicator> OnHost();
  // The communicator for the memory of `gpu`, which `join`, collective over the group, makes for the first call; null
  // once the group was left. InvalidArgument when the communicator of this rank is for another GPU; FailedPrecondition
  // in a forked child. An error of `join` stays.
  using Join = absl::FunctionRef<absl::StatusOr<std::shared_ptr<Communicator>>()>;
  absl::StatusOr<std::shared_ptr<Communicator>> OnGpu(int gpu, Join join);

  // OK, or the first error of one of the communicators.
  absl::Status status();
  // Leaves the group: the communicators are destroyed unless a call holds them.
  void End() override;
  void Abort(const std::string& reason) override;

 private:
  bool in_child() const { return process_ != getpid(); }
  std::unique_lock<std::mutex> Lock();

  const pid_t process_ = getpid();
  std::mutex joining_;  // held while a communicator for a GPU is made; taken before mutex_
  std::mutex mutex_;    // guards the members below
  std::shared_ptr<Communicator> on_host_;
  std::shared_ptr<Communicator> on_gpu_;
  std::optional<int> gpu_;  // of on_gpu_, or of the attempt to make it
  absl::Status error_of_join_;
};

}  // namespace tutti::dist

#endif  // TUTTI_TORCH_PROCESS_GROUP_MEMBERSHIP_H_
