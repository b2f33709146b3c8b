// Native collectives: whole collectives that a transport beside the messages performs, as NCCL does on GPUs.
//
// A native step (StepKind::kNative) is what one rank does in one native collective among the ranks of a group: all
// ranks of its plan, or one of Plan::groups. The k-th native steps of a group's ranks are one collective. A rank takes
// its native steps in the order of its plan. docs/decisions/0030-native-steps.md says what NCCL promises of rounding,
// and what the verifier then claims.
#ifndef TUTTI_NATIVE_H_
#define TUTTI_NATIVE_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "tutti/collective.h"
#include "tutti/dtype.h"

namespace tutti {

struct Plan;  // plan.h
struct Step;

// The collectives that the native transport of a rank can perform. Any type can be moved.
struct NativeCollectives {
  struct Reduction {
    DType dtype;
    ReduceOp op;
    bool operator==(const Reduction&) const = default;
  };

  std::vector<Collective> collectives = {};  // empty: there is no native transport
  std::vector<Reduction> reductions = {};    // with what the collectives that reduce can reduce

  bool operator==(const NativeCollectives&) const = default;
};

// The collectives of NCCL 2.28 with the results that Tutti promises: without min and max of floating types, in which
// NCCL drops NaN, and without the types and operators that NCCL does not have.
NativeCollectives CollectivesOfNccl();

// OK, or Unimplemented with the reason why `native` cannot perform the call. A premultiplied sum is the sum of
// products.
absl::Status CheckNative(const NativeCollectives& native, const CollectiveSpec& spec);

// Whether a native step can be this collective.
bool HasNativeForm(Collective collective);

// The call of a native step: its root is a place in the group. The step has passed the verifier, or a builder made it.
CollectiveSpec NativeSpecOf(const Plan& plan, const Step& step);
// The number of ranks that take part in a native step, and the place of `rank` among them; -1 if `rank` does not.
int NativeSizeOf(const Plan& plan, const Step& step);
int NativePlaceOf(const Plan& plan, const Step& step, Rank rank);

// The bytes that must enter or leave the rank at `place` among `size` ranks in one native call, whichever are more:
// 2(n-1)/n of the buffer in an all_reduce. What the transport moves beyond them is not counted.
std::int64_t NativeBytes(const CollectiveSpec& spec, Rank place, int size);
// NativeBytes of this rank's part in a native step.
std::int64_t NativeBytes(const Plan& plan, const Step& step);

}  // namespace tutti

#endif  // TUTTI_NATIVE_H_
