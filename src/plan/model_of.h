// The machine for which schedules are chosen.
#ifndef TUTTI_PLAN_MODEL_OF_H_
#define TUTTI_PLAN_MODEL_OF_H_

#include "tutti/cost_model.h"
#include "tutti/plan_builder.h"

namespace tutti {

inline const CostModel& ModelOf(const PlanOptions& options) {
  return options.cost_model != nullptr ? *options.cost_model : DefaultCostModel();
}

}  // namespace tutti

#endif  // TUTTI_PLAN_MODEL_OF_H_
