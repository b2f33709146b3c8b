#include "engine/device_compute.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "tutti/codec.h"

namespace tutti {
namespace {

// Carries out one step of the kinds whose steps are launches of their own.
absl::Status ComputeAlone(const kernels::DeviceKernels& table, const DeviceStep& step, CUstream_st* stream) {
  const Instruction& i = *step.instruction;
  switch (i.kind) {
    case StepKind::kReduce:
      return i.src_type != i.dst_type
                 ? table.reduce_and_round(stream, i.dst_type, i.op, i.divisor, step.dsts, step.srcs, i.count)
                 : table.reduce(stream, i.dst_type, i.op, i.divisor, step.dsts, step.srcs, i.count);
    case StepKind::kCopy:
      for (void* const dst : step.dsts) {
        absl::Status status = table.convert(stream, i.dst_type, dst, i.src_type, step.srcs[0], i.count);
        if (!status.ok()) return status;
      }
      return absl::OkStatus();
    case StepKind::kScale:
      return i.by_factor ? table.multiply(stream, i.dst_type, step.dsts[0], step.srcs[0], step.factor, i.count)
                         : table.divide(stream, i.dst_type, step.dsts[0], step.srcs[0], i.divisor, i.count);
    case StepKind::kCombine:
      return table.combine(stream, i.dst_type, step.dsts[0], step.srcs,
                           step.program->plan.coefficients.data() + i.first_coefficient, i.count,
                           i.finite ? kernels::Results::kFinite : kernels::Results::kAll);
    default:
      return absl::InternalError(absl::StrCat("step of kind ", Name(i.kind), " does not compute"));
  }
}

kernels::MessageLayout LayoutOf(const DeviceStep& step) {
  const CodecChoice& choice = step.program->plan.codecs[step.instruction->codec];
  return choice.codec->layout(step.instruction->count, choice.options);
}

kernels::EncodeJob EncodeJobOf(const DeviceStep& step) {
  return {.layout = LayoutOf(step),
          .values = step.srcs[0],
          .type = step.instruction->src_type,
          .message = static_cast<std::uint8_t*>(step.dsts[0]),
          .draw = step.draw,
          .residual = nullptr};
}

}  // namespace

absl::Status ComputeOnDevice(const kernels::DeviceKernels& table, absl::Span<const DeviceStep> steps,
                             CUstream_st* stream) {
  // The lists keep their memory: a launch allocates nothing after the first ones.
  thread_local std::vector<kernels::EncodeJob> encodes;
  thread_local std::vector<kernels::DecodeJob> decodes;
  switch (steps[0].instruction->kind) {
    case StepKind::kEncode:
      encodes.clear();
      for (const DeviceStep& step : steps) encodes.push_back(EncodeJobOf(step));
      return table.encode(stream, encodes);
    case StepKind::kDecode:
      decodes.clear();
      for (const DeviceStep& step : steps) {
        decodes.push_back({.layout = LayoutOf(step),
                           .message = static_cast<const std::uint8_t*>(step.srcs[0]),
                           .values = step.dsts[0],
                           .type = step.instruction->dst_type,
                           .accumulate = step.instruction->accumulate});
      }
      return table.decode(stream, decodes, steps[0].error);
    default:
      for (const DeviceStep& step : steps) {
        if (absl::Status status = ComputeAlone(table, step, stream); !status.ok()) return status;
      }
      return absl::OkStatus();
  }
}

absl::Status RecodeOnDevice(const kernels::DeviceKernels& table, absl::Span<const DeviceStep> steps,
                            CUstream_st* stream) {
  thread_local std::vector<const std::uint8_t*> versions;
  versions.clear();
  std::int32_t divisor = 1;
  for (const DeviceStep& step : steps) {
    if (step.instruction->kind == StepKind::kDecode) versions.push_back(static_cast<const std::uint8_t*>(step.srcs[0]));
    if (step.instruction->kind == StepKind::kScale) divisor = step.instruction->divisor;
  }
  return table.recode(stream, EncodeJobOf(steps.back()), static_cast<float*>(steps[0].dsts[0]), versions, divisor,
                      steps[0].error);
}

absl::Status LoadOneKernel(const kernels::DeviceKernels& table) {
  float number = 0;
  return table.convert(kernels::LoadingStream(), DType::kF16, &number, DType::kF32, &number, 1);
}

const absl::StatusOr<const kernels::DeviceKernels*>& TableOfCuda() {
  static const absl::StatusOr<const kernels::DeviceKernels*> table = kernels::CudaKernels();
  return table;
}

absl::Status ComputeByCuda(absl::Span<const DeviceStep> steps, CUstream_st* stream) {
  const absl::StatusOr<const kernels::DeviceKernels*>& table = TableOfCuda();
  return table.ok() ? ComputeOnDevice(**table, steps, stream) : table.status();
}

absl::Status RecodeByCuda(absl::Span<const DeviceStep> steps, CUstream_st* stream) {
  const absl::StatusOr<const kernels::DeviceKernels*>& table = TableOfCuda();
  return table.ok() ? RecodeOnDevice(**table, steps, stream) : table.status();
}

}  // namespace tutti
