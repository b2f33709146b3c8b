#include "bindings/torch/process_group/membership.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace tutti::dist {

std::unique_lock<std::mutex> Membership::Lock() {
  return in_child() ? std::unique_lock<std::mutex>() : std::unique_lock(mutex_);
}

std::shared_ptr<Communicator> Membership::OnHost() {
  const std::unique_lock lock = Lock();
  return on_host_;
}

absl::StatusOr<std::shared_ptr<Communicator>> Membership::OnGpu(int gpu, Join join) {
  if (in_child() && on_host_ != nullptr) return on_host_->status();
  if (in_child()) return nullptr;
  const std::lock_guard one_at_a_time(joining_);
  {
    const std::lock_guard lock(mutex_);
    if (on_host_ == nullptr) return nullptr;
    if (gpu_.has_value() && *gpu_ != gpu) {
      return absl::InvalidArgumentError(absl::StrCat("a tensor is on cuda:", gpu, ", and rank ", on_host_->rank(),
                                                     " of the group works on cuda:", *gpu_,
                                                     ": a rank of a group works on one GPU"));
    }
    if (gpu_.has_value()) {
      if (!error_of_join_.ok()) return error_of_join_;
      return on_gpu_;
    }
    gpu_ = gpu;
  }
  absl::StatusOr<std::shared_ptr<Communicator>> joined = join();
  const std::lock_guard lock(mutex_);
  error_of_join_ = joined.status();
  if (!joined.ok()) return joined.status();
  if (on_host_ == nullptr) return nullptr;  // the group was left meanwhile
  on_gpu_ = *std::move(joined);
  return on_gpu_;
}

absl::Status Membership::status() {
  const std::unique_lock lock = Lock();
  absl::Status first = error_of_join_;
  for (const auto& communicator : {on_host_, on_gpu_}) {
    if (communicator != nullptr) first.Update(communicator->status());
  }
  return first;
}

void Membership::End() {
  if (in_child()) return;
  std::shared_ptr<Communicator> on_host;
  std::shared_ptr<Communicator> on_gpu;
  const std::lock_guard lock(mutex_);
  on_host.swap(on_host_);
  on_gpu.swap(on_gpu_);
}

void Membership::Abort(const std::string& reason) {
  if (in_child()) return;
  std::shared_ptr<Communicator> on_host;
  std::shared_ptr<Communicator> on_gpu;
  {
    const std::lock_guard lock(mutex_);
    on_host = on_host_;
    on_gpu = on_gpu_;
  }
  for (const auto& communicator : {on_host, on_gpu}) {
    if (communicator == nullptr) continue;
    communicator->Abort(absl::AbortedError(absl::StrCat("rank ", communicator->rank(), " ", reason)));
  }
}

}  // namespace tutti::dist
