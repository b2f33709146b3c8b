// Autotuning: how the gradients of a model travel, chosen by measured times while the training runs.
#ifndef TUTTI_TUNING_H_
#define TUTTI_TUNING_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tutti {

// How gradients travel: everything that autotuning may choose. None of it changes what the ranks end with, except for
// the order in which floats are added.
struct Tuning {
  std::int64_t bucket_bytes = 0;        // SynchronizerOptions::bucket_bytes
  std::int64_t first_bucket_bytes = 0;  // SynchronizerOptions::first_bucket_bytes
  std::string schedule;                 // the option `schedule` of the strategy; empty: it has none
  bool hierarchical = false;            // the option `hierarchical` of the strategy

  bool operator==(const Tuning&) const = default;
};

// Text such as "bucket_bytes=5242880, first_bucket_bytes=1048576, schedule=ring, hierarchical=false".
std::string ToString(const Tuning& tuning);

// One tuning and its time.
struct TuningTrial {
  Tuning tuning;
  // The median time of a backward on the slowest rank, from BeginBackward to the end of FinishBackward; infinite where
  // the tuning was refused, for want of memory for example.
  double seconds = 0;
};

// The states of autotuning.
enum class TuningState : std::uint8_t { kOff, kNothingToTune, kTuning, kDone };
absl::string_view Name(TuningState state);  // "off", "nothing to tune", "tuning", "done"

// What autotuning has tried and chosen so far; equal on all ranks.
struct TuningReport {
  TuningState state = TuningState::kOff;
  std::string reason;               // for kNothingToTune: why
  std::vector<TuningTrial> trials;  // in the order of their measurement; the last ones repeat the start and the choice
  TuningTrial start;                // the options that the user gave, or their defaults, as measured last
  TuningTrial choice;               // the best so far, as measured last
  int backwards = 0;                // backwards that were exchanged for the tuning so far
  int most_backwards = 0;           // as many are exchanged for the tuning at most; the next one ends it

  // The share of the start's time that the choice saves.
  double gain() const;
};

// Whether TUTTI_AUTOTUNE=1 asks for autotuning where an adapter's user has not said whether to tune. InvalidArgument
// names a variable whose value is wrong.
absl::StatusOr<bool> AutotunesByDefault();

}  // namespace tutti

#endif  // TUTTI_TUNING_H_
