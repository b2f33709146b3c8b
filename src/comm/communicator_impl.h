#ifndef TUTTI_COMM_COMMUNICATOR_IMPL_H_
#define TUTTI_COMM_COMMUNICATOR_IMPL_H_

#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "comm/plan_cache.h"
#include "comm/runtime.h"
#include "tutti/communicator.h"

namespace tutti {

class BoundPlan::Impl {
 public:
  explicit Impl(Operation* operation) : operation_(operation) {}
  ~Impl() { operation_->Release(); }

  Work Start(const CallOptions& options);
  const Plan& plan() const { return operation_->program().plan; }

 private:
  Operation* const operation_;
};

class Communicator::Impl {
 public:
  Impl(std::shared_ptr<Runtime> runtime, std::unique_ptr<Channel> channel, std::shared_ptr<Store> store);
  // Waits for nothing: unfinished calls end with Aborted, and so do those of every communicator of this runtime.
  ~Impl();

  Work Call(const CollectiveSpec& spec, const void* in, void* out, const CallOptions& options);
  absl::StatusOr<Plan> PlanFor(const CollectiveSpec& spec, const Schedule* schedule) const;
  absl::StatusOr<BoundPlan> Bind(Plan plan, const PlanBuffers& buffers);
  absl::StatusOr<std::unique_ptr<Impl>> Split(int color, int key);

  const std::shared_ptr<Runtime> runtime;
  const std::unique_ptr<Channel> channel;
  const std::shared_ptr<Store> store;  // keys of this group alone
  const PlanOptions plan_options;

 private:
  absl::StatusOr<Operation*> OperationFor(const CollectiveSpec& spec, const Schedule* schedule);

  PlanCache cache_;
};

}  // namespace tutti

#endif  // TUTTI_COMM_COMMUNICATOR_IMPL_H_
