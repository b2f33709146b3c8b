// A UCX context with its one worker, configured as worker.cc says; owns both.
#ifndef TUTTI_TRANSPORTS_UCX_WORKER_H_
#define TUTTI_TRANSPORTS_UCX_WORKER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/fork.h"
#include "transports/ucx/library.h"

namespace tutti::ucx {

class Worker {
 public:
  static absl::StatusOr<std::unique_ptr<Worker>> Create();
  // Does nothing in a forked child: the worker is its parent's.
  ~Worker();

  const Library& ucp() const { return ucp_; }
  ucp_worker_h get() const { return worker_; }
  // A descriptor that is readable when an armed worker has something to do.
  int event_fd() const { return event_fd_; }
  // The worker's address, for peers on this node.
  absl::StatusOr<std::string> Address() const;
  // Whether this process was forked after the worker was made: a forked child must not use UCX.
  bool in_forked_child() const { return !maker_.is_this(); }

 private:
  explicit Worker(const Library& ucp) : ucp_(ucp) {}
  absl::Status Open();

  const Library& ucp_;
  const MakerProcess maker_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int event_fd_ = -1;  // belongs to the worker
};

}  // namespace tutti::ucx

#endif  // TUTTI_TRANSPORTS_UCX_WORKER_H_
