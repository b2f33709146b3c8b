// Plans that a test writes by hand, and what the verifier says of them.
#ifndef TUTTI_TESTS_PLAN_HAND_WRITTEN_PLANS_H_
#define TUTTI_TESTS_PLAN_HAND_WRITTEN_PLANS_H_

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tutti/plan_builder.h"
#include "tutti/verify.h"

namespace tutti {

using Author = std::function<void(PlanBuilder&)>;

// The plans of all ranks, which map each other's memory, as `author` writes them.
inline std::vector<Plan> Plans(const CollectiveSpec& spec, int size, const Author& author) {
  std::vector<Plan> plans;
  for (Rank rank = 0; rank < size; ++rank) {
    PlanBuilder b("test", spec, rank, size, {.peers_mapped = true});
    author(b);
    absl::StatusOr<Plan> plan = std::move(b).Build();
    EXPECT_TRUE(plan.ok()) << plan.status();
    if (plan.ok()) plans.push_back(*std::move(plan));
  }
  return plans;
}

// The error of the verifier; "" where the plans are right.
inline std::string ErrorOf(const CollectiveSpec& spec, int size, const Author& author) {
  return std::string(Verify(Plans(spec, size, author)).message());
}

}  // namespace tutti

#endif  // TUTTI_TESTS_PLAN_HAND_WRITTEN_PLANS_H_
