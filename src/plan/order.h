// The steps of all ranks as one graph: who meets whom, and what happens before what.
#ifndef TUTTI_PLAN_ORDER_H_
#define TUTTI_PLAN_ORDER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tutti/plan.h"

namespace tutti {

// Place of a step in a topological order of all steps of all ranks.
using Position = std::uint32_t;

// Edges of "happens before": dependencies, Send → its Recv, Signal → its Waits. A Recv is over only after its Send
// began, and by then the bytes of the Send have been read; nothing else orders steps of different ranks.
class Order {
 public:
  static constexpr Position kNone = ~Position{0};

  // Matches messages and signals and sorts all steps. FailedPrecondition when something is unmatched or steps wait for
  // each other in a circle, assuming that a Send may need its Recv to have started. The form of the plans must be valid
  // and `plans` must outlive the order.
  static absl::StatusOr<Order> Of(absl::Span<const Plan> plans);

  Position size() const { return static_cast<Position>(nodes_.size()); }
  // Index into `plans`.
  int plan_at(Position at) const { return nodes_[at].plan; }
  const Plan& plan(Position at) const { return plans_[nodes_[at].plan]; }
  StepId step_id(Position at) const { return nodes_[at].step; }
  const Step& step(Position at) const { return plan(at).steps[nodes_[at].step]; }
  Position at(int plan, StepId step) const { return position_[first_[plan] + step]; }
  // Steps directly before: all positions are smaller.
  absl::Span<const Position> before(Position at) const {
    return {before_.data() + first_before_[at], first_before_[at + 1] - first_before_[at]};
  }
  // The Send of a Recv, the Signal of a Wait.
  Position source(Position at) const { return source_[at]; }

  using Pair = std::pair<Position, Position>;
  // The first pair, by its later step, whose first does not happen before its second.
  std::optional<Pair> FirstUnordered(std::vector<Pair> pairs) const;

  // "rank 2 step 7 (send …)".
  std::string Describe(Position at) const { return Describe(nodes_[at].plan, nodes_[at].step); }

 private:
  struct Node {
    int plan;
    StepId step;
  };

  explicit Order(absl::Span<const Plan> plans);
  std::string Describe(int plan, StepId step) const;
  absl::Status Match();
  absl::Status Sort();
  std::string Circle(absl::Span<const Pair> edges, absl::Span<const std::uint32_t> missing) const;
  void Link();

  absl::Span<const Plan> plans_;
  std::vector<std::uint32_t> first_;  // of each plan's steps in serial_
  std::vector<Node> serial_;          // plan by plan
  std::vector<Position> match_;       // by serial number: the serial number of the Send or Signal
  std::vector<Node> nodes_;           // by position
  std::vector<Position> position_;    // by serial number
  std::vector<Position> source_;
  std::vector<std::uint32_t> first_before_;
  std::vector<Position> before_;
};

}  // namespace tutti

#endif  // TUTTI_PLAN_ORDER_H_
