// Drives the executor of one rank: submission, waiting, sleeping, deadlines and failure.
#ifndef TUTTI_ENGINE_ENGINE_H_
#define TUTTI_ENGINE_ENGINE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "engine/backoff.h"
#include "engine/control_block.h"
#include "engine/executor.h"
#include "engine/operation.h"
#include "engine/submission_queue.h"
#include "tutti/communicator.h"
#include "tutti/transport.h"

namespace tutti {

struct EngineOptions {
  Rank rank = 0;  // of the world
  absl::Duration timeout;
  // By rank of the world; nullptr: not mapped. This rank's own is never nullptr.
  std::vector<Presence*> presence;
  // Ranks on this node do not outnumber its cores: a waiting thread may spin for some microseconds.
  bool may_spin = false;
};

// One thread at a time drives: whoever waits for an operation, or else the engine's own thread, which sleeps unless
// something was submitted that nobody waits for. The transport is touched by the driver only.
class Engine {
 public:
  Engine(std::shared_ptr<Transport> transport, EngineOptions options);
  // Every channel is closed. Peers see an orderly goodbye, unless something failed.
  ~Engine();

  // Starts a run of `operation`, whose reference for the run is taken here, and returns its number. Lock-free.
  std::uint32_t Submit(Operation& operation, bool caller_drives);
  // Returns when the run has come to `milestone`, one of its operation's. In the background: leaves the driver's seat
  // to the engine thread when that has it.
  void Wait(Milestone& milestone, std::uint32_t run, bool background);
  void Abort(const absl::Status& cause);
  // Called before `channel` goes away: calls that are still under way on it end now, with Aborted.
  void Close(const Channel& channel);

  const std::shared_ptr<StickyStatus>& sticky() const { return sticky_; }
  // Counted by the driver, read by any thread.
  Counters counters() const TUTTI_NO_THREAD_SAFETY_ANALYSIS { return {executor_.calls(), executor_.wire_bytes()}; }
  const EngineOptions& options() const { return options_; }
  Transport& transport() const { return *transport_; }

  // ---- for channels and operations ----
  // Wakes the peers of `channel` that sleep.
  void RingSleepers(const Channel& channel);
  static void OnMessage(Completion* completion, const absl::Status& status);

 private:
  void Drive(const Milestone* milestone, std::uint32_t run, const BackoffPolicy& policy) TUTTI_REQUIRES(driver_mutex_);
  bool Poll() TUTTI_REQUIRES(driver_mutex_);
  void Rest() TUTTI_REQUIRES(driver_mutex_);
  void Fail(const absl::Status& cause) TUTTI_REQUIRES(driver_mutex_);
  absl::Status CheckHealth(std::int64_t now_ns) TUTTI_REQUIRES(driver_mutex_);
  absl::Status Overdue(Operation& operation) TUTTI_REQUIRES(driver_mutex_);
  // Takes the driver's seat, from the engine thread if that has it.
  void ClaimDriver() TUTTI_ACQUIRE(driver_mutex_);
  // The same for a caller that can also wait until another thread has driven its run to the end.
  bool TryToDrive(bool background) TUTTI_TRY_ACQUIRE(true, driver_mutex_);
  void WakeDriver();
  void WakeThread();
  void ThreadMain();

  const std::shared_ptr<Transport> transport_;
  const EngineOptions options_;
  Presence& presence_;
  const std::shared_ptr<StickyStatus> sticky_ = std::make_shared<StickyStatus>();
  SubmissionQueue queue_;

  Mutex driver_mutex_;  // held by the driver
  Executor executor_ TUTTI_GUARDED_BY(driver_mutex_);
  bool failed_ TUTTI_GUARDED_BY(driver_mutex_) = false;
  std::int64_t last_check_ns_ TUTTI_GUARDED_BY(driver_mutex_) = 0;

  std::atomic<bool> driver_sleeps_{false};
  std::atomic<bool> thread_drives_{false};
  std::atomic<int> claims_{0};                  // callers that want to drive instead of the engine thread
  std::atomic<std::uint32_t> thread_calls_{0};  // futex word of the engine thread
  std::atomic<bool> thread_sleeps_{false};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace tutti

#endif  // TUTTI_ENGINE_ENGINE_H_
