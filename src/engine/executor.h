// Runs programs: issues steps whose dependencies are complete, collects completions. It never waits; the engine does.
#ifndef TUTTI_ENGINE_EXECUTOR_H_
#define TUTTI_ENGINE_EXECUTOR_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/channel.h"
#include "engine/operation.h"
#include "tutti/transport.h"

namespace tutti {

// What an operation cannot go on without.
struct Blocker {
  Rank peer = 0;  // of the operation's channel
  std::string step;
};

// Belongs to the engine's driver.
class Executor {
 public:
  explicit Executor(Transport& transport) : transport_(transport) {
    active_.reserve(kRoom);
    pending_.reserve(kRoom);
  }

  // Queues an operation; it starts when its lane is free, in this order.
  void Add(Operation* operation);

  // Advances everything as far as it goes now; true when anything moved. An error is that of a step or a message.
  absl::StatusOr<bool> Poll();
  // Ends every operation; the engine's sticky status says why. No message is under way any more.
  void EndAll();

  // Whether an operation of `channel` has not ended.
  bool Uses(const Channel& channel) const;
  bool idle() const { return active_.empty() && pending_.empty(); }
  bool waits_for_messages() const { return messages_ > 0; }
  bool waits_for_signals() const;
  // Whether all of them are (CallOptions::background).
  bool all_in_background() const;
  // The oldest operation, or nullptr.
  Operation* oldest() const { return active_.empty() ? nullptr : active_.front(); }
  std::optional<Blocker> BlockerOf(Operation& operation);

  void OnMessage(Operation::MessageCompletion& completion, const absl::Status& status);

  std::int64_t wire_bytes() const { return wire_bytes_.load(std::memory_order_relaxed); }
  std::int64_t calls() const { return calls_.load(std::memory_order_relaxed); }

 private:
  // Operations for which room is made at the start: until there are more at once, queueing one allocates nothing.
  static constexpr std::size_t kRoom = 64;

  bool AdmitPending();
  absl::StatusOr<bool> Advance(Operation& operation);
  absl::Status Execute(Operation& operation, StepId id);
  absl::Status Compute(Operation& operation, StepId id);
  void Complete(Operation& operation, StepId id);

  Transport& transport_;
  std::vector<Operation*> active_;
  std::vector<Operation*> pending_;
  std::int64_t messages_ = 0;  // sends and receives under way
  absl::Status message_error_;
  bool message_completed_ = false;
  // Written by the driver, read by any thread.
  std::atomic<std::int64_t> wire_bytes_{0};
  std::atomic<std::int64_t> calls_{0};
};

}  // namespace tutti

#endif  // TUTTI_ENGINE_EXECUTOR_H_
