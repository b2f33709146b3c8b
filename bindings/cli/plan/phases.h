// The phases of one rank and their times; a phase is a number of steps that a picture shows as one.
#ifndef TUTTI_BINDINGS_CLI_PLAN_PHASES_H_
#define TUTTI_BINDINGS_CLI_PLAN_PHASES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "tutti/cost.h"
#include "tutti/plan.h"

namespace tutti::cli {

inline constexpr std::size_t kStepKinds = static_cast<std::size_t>(StepKind::kNative) + 1;

// Steps of one rank that follow each other, from `begin` to `end`; seconds from the common start.
struct Phase {
  struct OfKind {
    std::size_t steps = 0;
    double seconds = 0;
    std::int64_t least = 0, most = 0;  // bytes of a step
    Rank peer = kSelf;                 // of all these steps; kSeveral when they differ
  };
  static constexpr Rank kSeveral = std::numeric_limits<Rank>::min();

  double begin = 0;
  double end = 0;
  bool is_short = true;  // whether it is made of steps that are too short for bars of their own
  std::vector<StepId> steps;
  std::array<OfKind, kStepKinds> kinds;

  void Add(const Phase& next);
  double length() const { return end - begin; }
  // The part of the time, or of the steps of a phase that takes none, that is due to one kind of step.
  double part(std::size_t kind) const;
  // Whether all steps are of one kind and, where they are messages, have one peer.
  bool is_uniform() const;
  // Whether the steps are drawn as one bar, when the whole time is `seconds`.
  bool is_folded(double seconds) const;
};

// The phases of one rank's plan, one after the other in time, when the whole time is `seconds`. A long step is a phase
// of its own, unless steps of the same kind, with the same peer, are next to it; waits are in no phase.
std::vector<Phase> PhasesOf(const Plan& plan, absl::Span<const StepTime> times, double seconds);

// Labels of a step, and of a phase; the longest first.
std::vector<std::string> LabelsOf(const Plan& plan, const Step& step);
std::vector<std::string> LabelsOf(const Plan& plan, const Phase& phase);

// The bytes of a step's first destination, or of what it sends.
std::int64_t BytesOf(const Plan& plan, const Step& step);

// Whether the step reads or writes the memory of another rank.
bool IsMapped(const Plan& plan, const Step& step);

// "256 KiB", "1.5 MiB", "7 bytes".
std::string BytesInWords(std::int64_t bytes);

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_PLAN_PHASES_H_
