#include "bindings/cli/advise/strategies.h"

namespace tutti::cli {
namespace {

// Measured: in docs/results/training.md, on 4 ranks. "Points" are percentage points of accuracy on the test data.
constexpr AdvisedStrategy kStrategies[] = {
    {"gradient_allreduce", Asks::kNothing, "nothing: gradients are averaged exactly"},
    {"gradient_allreduce:hierarchical=true", Asks::kNothing, "nothing: gradients are averaged exactly",
     /*on_shared_links=*/true},
    {"gradient_allreduce:codec=bf16", Asks::kNothing,
     "none measured; gradients, and their average, are rounded by up to 0.4 %"},
    {"gradient_allreduce:codec=fp16", Asks::kNothing,
     "none measured; gradients, and their average, are rounded by up to 0.05 % (more below 0.00006), infinite beyond "
     "65504"},
    {"gradient_allreduce:codec=bf16,hierarchical=true", Asks::kNothing,
     "none measured; sums of nodes, and the average, are rounded by up to 0.4 %", /*on_shared_links=*/true},
    {"bytegrad", Asks::kNothing, "none measured; 8 bits: a gradient is off by up to 0.4 % of its block's range"},
    {"bytegrad:codec=uint4_block", Asks::kNothing,
     "at most 0.1 points measured; 4 bits: a gradient is off by up to 7 % of its block's range"},
    {"bytegrad:codec=uint4_block,rotation=true,error_feedback=true", Asks::kNothing,
     "at most 0.1 points measured; 4 bits, and what they lose is sent later"},
    {"decentralized:peer_selection_mode=shift_one", Asks::kNothing,
     "at most 0.2 points measured; replicas differ until Flush, and more so on more ranks"},
    {"decentralized", Asks::kNothing, "at most 0.1 points measured; replicas differ until Flush"},
    {"low_precision_decentralized", Asks::kNothing,
     "at most 0.1 points measured; replicas differ until Flush, and more so on more ranks"},
    {"qadam", Asks::kAdam, "at most 0.2 points measured beside Adam; after a warm-up of exact steps"},
    {"async", Asks::kLossOfAccuracy, "0.5 to 0.9 points measured; averages are late"},
    {"bytegrad:codec=topk,error_feedback=true", Asks::kLossOfAccuracy, "0.8 to 6.1 points measured in short trainings"},
    {"bytegrad:codec=sign,error_feedback=true", Asks::kLossOfAccuracy, "7.4 to 7.9 points measured in short trainings"},
};

}  // namespace

absl::Span<const AdvisedStrategy> AdvisedStrategies() { return kStrategies; }

}  // namespace tutti::cli
