// A point that every run of a call comes to once: the end, or the moment when the output is final.
#ifndef TUTTI_ENGINE_MILESTONE_H_
#define TUTTI_ENGINE_MILESTONE_H_

#include <atomic>
#include <cstdint>

#include "absl/time/time.h"

namespace tutti {

// Any thread may ask and sleep; the engine's driver alone says that a run has come to the milestone.
class Milestone {
 public:
  // Whether run number `run`, counted from 1, has come to this milestone. The load is sequentially consistent for those
  // who announce themselves first, by another word, and look then (Call::OnDone): Pass, or they, must see the other.
  bool passed(std::uint32_t run) const {
    return static_cast<std::int32_t>(runs_.load(std::memory_order_seq_cst) - run) >= 0;
  }
  // The number of runs that have come to this milestone.
  std::uint32_t runs() const { return runs_.load(std::memory_order_relaxed); }
  // Tells that the current run has come to this milestone, and wakes whoever sleeps for it.
  void Pass();
  // Tells the same of a run that no other thread knows of yet, so that nobody can sleep for it.
  void PassUnseen() { runs_.store(runs() + 1, std::memory_order_release); }
  // Sleeps until `run` has come to this milestone, for at most `most`.
  void Sleep(std::uint32_t run, absl::Duration most);

 private:
  std::atomic<std::uint32_t> runs_{0};  // the number of runs that have come to this milestone; a futex word
  std::atomic<std::uint32_t> sleepers_{0};
};

}  // namespace tutti

#endif  // TUTTI_ENGINE_MILESTONE_H_
