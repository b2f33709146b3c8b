#include "engine/host_compute.h"

#include "absl/strings/str_cat.h"
#include "base/floating_mode.h"
#include "kernels/combine.h"
#include "kernels/reduce.h"
#include "tutti/codec.h"

namespace tutti {
namespace {

absl::Span<const std::uint8_t> EncodedBytes(const void* memory, std::int64_t bytes) {
  return {static_cast<const std::uint8_t*>(memory), static_cast<std::size_t>(bytes)};
}

}  // namespace

absl::Status Compute(const Program& program, const Instruction& instruction, absl::Span<void* const> dsts,
                     absl::Span<const void* const> srcs, std::uint64_t draw, double factor) {
  // The thread may be the engine's or the caller's, in whatever mode the caller computes: ranks end with the same bits.
  const DefaultFloatingMode mode;
  const kernels::Stores stores = instruction.streaming ? kernels::Stores::kStreaming : kernels::Stores::kCached;
  const auto count = static_cast<std::size_t>(instruction.count);
  switch (instruction.kind) {
    case StepKind::kReduce:
      if (instruction.src_type != instruction.dst_type) {
        kernels::ReduceAndRound(instruction.dst_type, instruction.op, instruction.divisor, dsts, srcs,
                                instruction.count, stores);
      } else {
        kernels::Reduce(instruction.dst_type, instruction.op, instruction.divisor, dsts, srcs, instruction.count,
                        stores);
      }
      return absl::OkStatus();
    case StepKind::kCopy:
      for (void* const dst : dsts) {
        kernels::Convert(instruction.dst_type, dst, instruction.src_type, srcs[0], instruction.count, stores);
      }
      return absl::OkStatus();
    case StepKind::kScale:
      if (instruction.by_factor) {
        kernels::Multiply(instruction.dst_type, dsts[0], srcs[0], factor, instruction.count);
        return absl::OkStatus();
      }
      kernels::Divide(instruction.dst_type, dsts[0], srcs[0], instruction.divisor, instruction.count);
      return absl::OkStatus();
    case StepKind::kCombine:
      kernels::Combine(instruction.dst_type, dsts[0], srcs,
                       program.plan.coefficients.data() + instruction.first_coefficient, instruction.count,
                       instruction.finite ? kernels::Results::kFinite : kernels::Results::kAll);
      return absl::OkStatus();
    case StepKind::kEncode: {
      const CodecChoice& choice = program.plan.codecs[instruction.codec];
      choice.codec->encode({static_cast<const float*>(srcs[0]), count}, choice.options, draw,
                           {static_cast<std::uint8_t*>(dsts[0]), static_cast<std::size_t>(instruction.bytes)});
      return absl::OkStatus();
    }
    case StepKind::kDecode: {
      const CodecChoice& choice = program.plan.codecs[instruction.codec];
      return choice.codec->decode(EncodedBytes(srcs[0], instruction.bytes), choice.options, instruction.accumulate,
                                  {static_cast<float*>(dsts[0]), count});
    }
    default:
      return absl::InternalError(absl::StrCat("step of kind ", Name(instruction.kind), " does not compute"));
  }
}

}  // namespace tutti
