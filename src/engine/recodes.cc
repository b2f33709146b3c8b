#include "engine/recodes.h"

#include "engine/program.h"
#include "kernels/operand_list.h"

namespace tutti {
namespace {

// Whether the ranges share bytes, but are not one range.
bool OverlapInPart(const Ref& a, const Ref& b) {
  if (a.space != b.space || a.owner != b.owner || (a.offset == b.offset && a.bytes == b.bytes)) return false;
  return a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

// Whether the encoded message may be written while the versions are read, which a recode does block by block.
bool MayOverwrite(const Program& program, std::size_t begin, std::size_t end) {
  const Plan& plan = program.plan;
  const auto step = [&](std::size_t launch) -> const Step& {
    return plan.steps[program.stream_order->launch(launch)[0]];
  };
  const Ref& message = plan.dsts(step(end - 1))[0];
  for (std::size_t launch = begin; launch + 1 < end; ++launch) {
    if (OverlapInPart(plan.srcs(step(launch))[0], message)) return false;
  }
  return true;
}

bool IsSame(const Operand& a, const Operand& b) { return a.base == b.base && a.offset == b.offset; }

// The step of a launch that has one step; null: it has several.
const Instruction* OnlyStep(const Program& program, std::size_t launch) {
  if (launch >= program.stream_order->size()) return nullptr;
  const absl::Span<const StepId> steps = program.stream_order->launch(launch);
  return steps.size() == 1 ? &program.instructions[steps[0]] : nullptr;
}

// The end of the recode that begins at launch `begin`; `begin` when there is none.
std::size_t EndOfRecode(const Program& program, std::size_t begin) {
  const Instruction* const first = OnlyStep(program, begin);
  if (first == nullptr || first->kind != StepKind::kDecode || first->accumulate || first->dst_type != DType::kF32) {
    return begin;
  }
  const Operand& sum = program.dsts(*first)[0];
  std::size_t at = begin + 1;
  const auto adds = [&](const Instruction* step) {
    return step != nullptr && step->kind == StepKind::kDecode && step->accumulate && step->codec == first->codec &&
           step->count == first->count && IsSame(program.dsts(*step)[0], sum);
  };
  while (adds(OnlyStep(program, at))) ++at;
  if (at - begin > static_cast<std::size_t>(kernels::kMaxOperands)) return begin;
  const Instruction* step = OnlyStep(program, at);
  const bool divides = step != nullptr && step->kind == StepKind::kScale && !step->by_factor &&
                       step->count == first->count && IsSame(program.dsts(*step)[0], sum) &&
                       IsSame(program.srcs(*step)[0], sum);
  if (divides) step = OnlyStep(program, ++at);
  const bool encodes = step != nullptr && step->kind == StepKind::kEncode && step->codec == first->codec &&
                       step->count == first->count && step->src_type == DType::kF32 &&
                       IsSame(program.srcs(*step)[0], sum);
  return encodes ? at + 1 : begin;
}

}  // namespace

std::vector<Recode> FindRecodes(const Program& program) {
  std::vector<Recode> found;
  for (std::size_t launch = 0; launch < program.stream_order->size(); ++launch) {
    const std::size_t end = EndOfRecode(program, launch);
    if (end == launch || !MayOverwrite(program, launch, end)) continue;
    found.push_back({launch, end});
    launch = end - 1;
  }
  return found;
}

}  // namespace tutti
