#include "sync/tuner.h"

#include <algorithm>
#include <utility>

#include "tutti/synchronizer.h"

namespace tutti {

Tuning With(const TuningChange& change, Tuning tuning) {
  if (change.bucket_bytes.has_value()) {
    tuning.bucket_bytes = *change.bucket_bytes;
    tuning.first_bucket_bytes = std::min(SynchronizerOptions().first_bucket_bytes, tuning.bucket_bytes);
  }
  if (change.schedule.has_value()) tuning.schedule = *change.schedule;
  if (change.hierarchical.has_value()) tuning.hierarchical = *change.hierarchical;
  return tuning;
}

Tuner::Tuner(Tuning start, std::vector<TuningChange> changes)
    : changes_(std::move(changes)), start_{.tuning = std::move(start)}, best_(start_) {}

Tuning Tuner::next() const {
  switch (stage_) {
    case Stage::kStart:
    case Stage::kStartAgain:
      return start_.tuning;
    case Stage::kChanges:
      return With(changes_[change_], best_.tuning);
    case Stage::kBestAgain:
    case Stage::kDone:
      break;
  }
  return best_.tuning;
}

void Tuner::Add(double seconds) {
  trials_.push_back({next(), seconds});
  switch (stage_) {
    case Stage::kStart:
      start_ = best_ = trials_.back();
      stage_ = Stage::kChanges;
      return EndChanges();
    case Stage::kChanges:
      if (IsBetter(seconds, best_.seconds)) best_ = trials_.back();
      ++change_;
      return EndChanges();
    case Stage::kStartAgain:
      start_.seconds = seconds;
      stage_ = Stage::kBestAgain;
      return;
    case Stage::kBestAgain:
      best_.seconds = seconds;
      if (!IsBetter(best_.seconds, start_.seconds)) best_ = start_;
      stage_ = Stage::kDone;
      return;
    case Stage::kDone:
      return;
  }
}

// Goes on to the next stage when all changes were tried.
void Tuner::EndChanges() {
  if (change_ < changes_.size()) return;
  stage_ = best_.tuning == start_.tuning ? Stage::kDone : Stage::kStartAgain;
}

}  // namespace tutti
