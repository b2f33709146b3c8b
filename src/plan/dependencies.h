// The dependencies of a step on earlier steps, derived from the bytes that both touch.
#ifndef TUTTI_PLAN_DEPENDENCIES_H_
#define TUTTI_PLAN_DEPENDENCIES_H_

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "tutti/plan.h"
#include "tutti/plan_builder.h"

namespace tutti {

// A map of disjoint byte intervals for every space of every owner, each with its last writer and the readers since that
// write. Adding a step costs O(log intervals + dependencies).
class PlanBuilder::Dependencies {
 public:
  // Adds the dependencies of the next step to plan.deps and fills step.first_dep and num_deps. The step's id is
  // plan.steps.size(); its refs are already in plan.refs.
  void Add(Plan& plan, Step& step);
  // Add, for a signal that follows the steps which touch `touched` (PlanBuilder::SignalAfter).
  void AddSignalAfter(absl::Span<const Ref> touched, Plan& plan, Step& signal);

 private:
  static constexpr StepId kNone = ~StepId{0};
  static constexpr std::uint32_t kNoReader = ~std::uint32_t{0};

  // Readers are immutable lists with shared tails, so that an interval splits in constant time.
  struct Reader {
    StepId step;
    std::uint32_t next;
  };
  struct Interval {
    std::int64_t end;
    StepId writer = kNone;
    std::uint32_t readers = kNoReader;
  };
  using Intervals = std::map<std::int64_t, Interval>;  // keyed by the first byte

  Intervals::iterator Split(Intervals& intervals, std::int64_t at);
  void Read(Intervals& intervals, const Ref& ref, StepId step);
  void Write(Intervals& intervals, const Ref& ref, StepId step);
  void FindTouching(const Ref& ref);
  void FollowLastWait();
  void Prune(const Plan& plan);
  void Finish(Plan& plan, Step& step);

  std::map<std::pair<Rank, Space>, Intervals> memory_;
  std::vector<Reader> readers_;
  std::vector<StepId> found_;    // dependencies of the step being added
  std::vector<StepId> implied_;  // steps that a found dependency already follows
  // Steps that nothing follows yet, on which a Signal must depend.
  std::vector<bool> leaf_;
  std::vector<StepId> leaves_;
  StepId last_wait_ = kNone;
  StepId last_signal_ = kNone;
  StepId last_native_ = kNone;
};

}  // namespace tutti

#endif  // TUTTI_PLAN_DEPENDENCIES_H_
