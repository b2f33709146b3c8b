// Operations of one program that wait to be used again.
#ifndef TUTTI_ENGINE_OPERATION_POOL_H_
#define TUTTI_ENGINE_OPERATION_POOL_H_

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "engine/operation.h"

namespace tutti {

// Thread-safe. An operation that is in use keeps its pool alive.
class OperationPool : public std::enable_shared_from_this<OperationPool> {
 public:
  OperationPool(std::shared_ptr<const Program> program, Channel& channel)
      : program_(std::move(program)), channel_(channel) {}
  ~OperationPool() {
    for (Operation* operation : idle_) delete operation;
  }

  // An operation with one reference; a new one only when all others are in use.
  absl::StatusOr<Operation*> Take() {
    {
      const MutexLock lock(mutex_);
      if (!idle_.empty()) {
        Operation* operation = idle_.back();
        idle_.pop_back();
        operation->pool = shared_from_this();
        return operation;
      }
    }
    absl::StatusOr<Operation*> operation = Operation::Create(program_, channel_);
    if (operation.ok()) (*operation)->pool = shared_from_this();
    return operation;
  }

  void Return(Operation* operation) {
    const MutexLock lock(mutex_);
    idle_.push_back(operation);
  }

 private:
  const std::shared_ptr<const Program> program_;
  Channel& channel_;
  Mutex mutex_;
  std::vector<Operation*> idle_ TUTTI_GUARDED_BY(mutex_);
};

}  // namespace tutti

#endif  // TUTTI_ENGINE_OPERATION_POOL_H_
