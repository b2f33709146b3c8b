// The choice between tunings by their measured times.
#ifndef TUTTI_SYNC_TUNER_H_
#define TUTTI_SYNC_TUNER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tutti/tuning.h"

namespace tutti {

// A change of one property of a tuning.
struct TuningChange {
  std::optional<std::int64_t> bucket_bytes = std::nullopt;
  std::optional<std::string> schedule = std::nullopt;
  std::optional<bool> hierarchical = std::nullopt;
};

// `tuning` with the change. With another bucket size the first bucket is as large as by default, or as the others.
Tuning With(const TuningChange& change, Tuning tuning);

// Tells which tuning to measure next, and what to keep. Tries the changes one after the other, each on the best tuning
// so far, so that the number of trials is the sum and not the product of the numbers of values. A tuning is better when
// it saves kMinGain of the time of the best one. A better tuning was perhaps measured in a lucky moment: at last it
// is measured against the start once more, and must be better again. Ranks that add equal times choose alike.
class Tuner {
 public:
  static constexpr double kMinGain = 0.05;

  Tuner(Tuning start, std::vector<TuningChange> changes);

  // The number of trials, at most.
  int most_trials() const { return static_cast<int>(changes_.size()) + 3; }
  bool done() const { return stage_ == Stage::kDone; }
  // The tuning to measure next; the choice when done.
  Tuning next() const;
  // Adds the time of next(); infinite for a tuning that was refused.
  void Add(double seconds);

  const std::vector<TuningTrial>& trials() const { return trials_; }
  const TuningTrial& start() const { return start_; }
  const TuningTrial& best() const { return best_; }

 private:
  enum class Stage : std::uint8_t { kStart, kChanges, kStartAgain, kBestAgain, kDone };

  static bool IsBetter(double seconds, double than) { return seconds < (1 - kMinGain) * than; }
  void EndChanges();

  const std::vector<TuningChange> changes_;
  Stage stage_ = Stage::kStart;
  std::size_t change_ = 0;  // the change that is measured next
  std::vector<TuningTrial> trials_;
  TuningTrial start_;
  TuningTrial best_;
};

}  // namespace tutti

#endif  // TUTTI_SYNC_TUNER_H_
