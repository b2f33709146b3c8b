#include "tests/harness/rank_barrier.h"

namespace tutti {

bool RankBarrier::AllOk(const absl::Status& mine) {
  Tell(mine);
  Wait();
  const bool all_ok = error().ok();
  Wait();  // what a rank tells next, no other rank takes for an error from before
  return all_ok;
}

void RankBarrier::Tell(const absl::Status& mine) {
  if (mine.ok()) return;
  MutexLock lock(mutex_);
  if (error_.ok() || (absl::IsDeadlineExceeded(mine) && !absl::IsDeadlineExceeded(error_))) error_ = mine;
}

absl::Status RankBarrier::error() const {
  MutexLock lock(mutex_);
  return error_;
}

}  // namespace tutti
