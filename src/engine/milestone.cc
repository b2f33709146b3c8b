#include "engine/milestone.h"

#include "base/futex.h"

namespace tutti {

void Milestone::Pass() {
  runs_.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) != 0) FutexWakeAll(runs_);
}

void Milestone::Sleep(std::uint32_t run, absl::Duration most) {
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  const std::uint32_t seen = runs_.load(std::memory_order_seq_cst);
  if (!passed(run)) FutexWait(runs_, seen, most);
  sleepers_.fetch_sub(1, std::memory_order_seq_cst);
}

}  // namespace tutti
