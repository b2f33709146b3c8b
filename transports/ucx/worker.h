// A UCX context with its one worker, configured as platform facts demand; owns both.
#ifndef TUTTI_TRANSPORTS_UCX_WORKER_H_
#define TUTTI_TRANSPORTS_UCX_WORKER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "transports/ucx/library.h"

namespace tutti::ucx {

class Worker {
 public:
  // `device`: the only network device that UCX may use.
  static absl::StatusOr<std::unique_ptr<Worker>> Create(const std::string& device);
  ~Worker();

  const Library& ucp() const { return ucp_; }
  ucp_worker_h get() const { return worker_; }
  // Becomes readable when an armed worker has something to do.
  int event_fd() const { return event_fd_; }
  // With `network_only`, without the addresses that only peers on this node can use.
  absl::StatusOr<std::string> Address(bool network_only) const;

 private:
  explicit Worker(const Library& ucp) : ucp_(ucp) {}
  absl::Status Open(const std::string& device);

  const Library& ucp_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  int event_fd_ = -1;  // belongs to the worker
};

}  // namespace tutti::ucx

#endif  // TUTTI_TRANSPORTS_UCX_WORKER_H_
