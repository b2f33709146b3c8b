// The steps of all ranks as one graph: which steps meet, and which step happens before which.
#ifndef TUTTI_PLAN_ORDER_H_
#define TUTTI_PLAN_ORDER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tutti/plan.h"

namespace tutti {

// The place of a step in a topological order of all steps of all ranks.
using Position = std::uint32_t;

// The order "happens before" of all steps. The edges of this order are dependencies, Send → its Recv, and Signal → its
// Waits. A Recv ends only after its Send began, and the bytes of the Send have been read by then. A native step ends
// only after the native steps have begun whose inputs reach the rank (Order::givers), so the dependencies of those
// steps come before it; nothing else orders steps of different ranks.
class Order {
 public:
  static constexpr Position kNone = ~Position{0};

  // Matches messages, signals and native steps, and sorts all steps. FailedPrecondition when something is unmatched or
  // steps wait for each other in a circle, assuming that a Send may need its Recv to have started, and a native step
  // all other ranks of its group. The form of the plans must be valid and `plans` must outlive the order.
  static absl::StatusOr<Order> Of(absl::Span<const Plan> plans);

  Position size() const { return static_cast<Position>(nodes_.size()); }
  // The index in `plans` of the plan of a step.
  int plan_at(Position at) const { return nodes_[at].plan; }
  const Plan& plan(Position at) const { return plans_[nodes_[at].plan]; }
  StepId step_id(Position at) const { return nodes_[at].step; }
  const Step& step(Position at) const { return plan(at).steps[nodes_[at].step]; }
  Position at(int plan, StepId step) const { return position_[first_[plan] + step]; }
  // The steps directly before a step; their positions are smaller.
  absl::Span<const Position> before(Position at) const {
    return {before_.data() + before_of_[at].begin, before_of_[at].size};
  }
  // The Send of a Recv, or the Signal of a Wait; of a native step the number of its collective, from 0.
  Position source(Position at) const { return source_[at]; }
  // The native steps that are one collective with a native step, by their places in the group.
  absl::Span<const Position> partners(Position at) const { return partners_[source_[at]]; }
  // Those whose inputs reach the rank of a native step, its own among them: these steps have begun when it ends.
  std::vector<Position> givers(Position at) const;

  using Pair = std::pair<Position, Position>;
  // The first of `pairs`, by its later step, whose first step does not happen before its second. `done` is told the
  // part of the pairs that has been looked at.
  std::optional<Pair> FirstUnordered(
      std::vector<Pair> pairs, absl::FunctionRef<void(double)> done = [](double) {}) const;

  // Text such as "rank 2 step 7 (send …)".
  std::string Describe(Position at) const { return Describe(nodes_[at].plan, nodes_[at].step); }

 private:
  struct Node {
    int plan;
    StepId step;
  };
  struct List {
    std::size_t begin;
    std::size_t size;
  };

  explicit Order(absl::Span<const Plan> plans);
  std::string Describe(int plan, StepId step) const;
  absl::Status Match();
  absl::Status Meet();
  absl::Status Sort();
  std::string Circle(absl::Span<const Pair> edges, absl::Span<const std::uint32_t> missing) const;
  void Link();

  absl::Span<const Plan> plans_;
  std::vector<std::uint32_t> first_;  // index in serial_ of the first step of each plan
  std::vector<Node> serial_;          // all steps, plan by plan
  // By serial number: the serial number of the Send or Signal; of a native step the index of its meeting.
  std::vector<Position> match_;
  std::vector<std::vector<Position>> meetings_;  // serial numbers of native steps that are one collective
  std::vector<Node> nodes_;                      // the steps by their positions
  std::vector<Position> position_;               // by serial number: the position of the step
  std::vector<Position> source_;                 // by position, what match_ is by serial number
  std::vector<std::vector<Position>> partners_;  // by meeting
  std::vector<List> before_of_;                  // by position; the place of a list in before_
  std::vector<Position> before_;
};

}  // namespace tutti

#endif  // TUTTI_PLAN_ORDER_H_
