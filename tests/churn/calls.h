// What the ranks put into a call, and what each of them must find in its output.
#ifndef TUTTI_TESTS_CHURN_CALLS_H_
#define TUTTI_TESTS_CHURN_CALLS_H_

#include <vector>

#include "tests/churn/memory.h"
#include "tutti/collective.h"

namespace tutti::churn {

// A run of elements, one after the other.
struct Block {
  std::int64_t count = 0;
  Values values;
};

// A call that all ranks make together. `salt` makes its values different from those of the calls before.
struct SharedCall {
  Collective collective = Collective::kAllReduce;
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;
  std::int64_t count = 0;  // elements; for all_to_all_v, the unit of its blocks
  Rank root = 0;
  bool in_place = false;
  int salt = 0;
};

CollectiveSpec SpecOf(const SharedCall& call, Rank rank, int size);
// Element i of the input of `rank`, a number so small that sums over five ranks are exact in every type.
int InputValue(const SharedCall& call, Rank rank, std::int64_t i);
// The output of `rank`, block by block.
std::vector<Block> ExpectedOutput(const SharedCall& call, Rank rank, int size);

}  // namespace tutti::churn

#endif  // TUTTI_TESTS_CHURN_CALLS_H_
