#include "bindings/torch/process_group/reduce_op.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

namespace tutti::dist {

ReduceOp ReduceOpOf(const char* call, const ::c10d::ReduceOp& op, CallOptions& options) {
  switch (op.op_) {
    case ::c10d::ReduceOp::SUM:
      return ReduceOp::kSum;
    case ::c10d::ReduceOp::AVG:
      return ReduceOp::kAvg;
    case ::c10d::ReduceOp::PRODUCT:
      return ReduceOp::kProd;
    case ::c10d::ReduceOp::MIN:
      return ReduceOp::kMin;
    case ::c10d::ReduceOp::MAX:
      return ReduceOp::kMax;
    case ::c10d::ReduceOp::BAND:
      return ReduceOp::kBitwiseAnd;
    case ::c10d::ReduceOp::BOR:
      return ReduceOp::kBitwiseOr;
    case ::c10d::ReduceOp::BXOR:
      return ReduceOp::kBitwiseXor;
    case ::c10d::ReduceOp::PREMUL_SUM: {
      const auto* const supplement = dynamic_cast<::c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
      TORCH_CHECK_VALUE(supplement != nullptr, "tutti: ", call, ": PREMUL_SUM needs its factor");
      options.factor =
          supplement->tensor_factor.defined() ? supplement->tensor_factor.item<double>() : supplement->double_factor;
      return ReduceOp::kPremulSum;
    }
    default:
      TORCH_CHECK_VALUE(false, "tutti: ", call, ": the operator number ", static_cast<int>(op.op_),
                        " is unknown; known: SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR, PREMUL_SUM");
  }
}

}  // namespace tutti::dist
