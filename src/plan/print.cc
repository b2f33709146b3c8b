#include "tutti/print.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "plan/meetings.h"

namespace tutti {
namespace {

// The widest line that moves the column of dependencies to the right.
constexpr std::size_t kWidest = 100;

std::string List(absl::Span<const Ref> refs) {
  return absl::StrJoin(refs, ", ", [](std::string* out, const Ref& ref) { absl::StrAppend(out, ToText(ref)); });
}

std::string CodecText(const Plan& plan, const Step& step) {
  if (step.codec >= plan.codecs.size() || plan.codecs[step.codec].codec == nullptr) return "?";
  return ToString(plan.codecs[step.codec]);
}

// Text such as "1 · in[0,4) f32 + -5/3 · state[0,4) f32".
std::string Sum(const Plan& plan, const Step& step) {
  std::string sum;
  for (std::size_t i = 0; i < step.num_srcs; ++i) {
    const std::size_t at = step.first_coefficient + i;
    const Coefficient c = at < plan.coefficients.size() ? plan.coefficients[at] : Coefficient{0, 0};
    absl::StrAppend(&sum, i == 0 ? "" : " + ", c.factor, c.divisor == 1 ? "" : absl::StrCat("/", c.divisor), " · ",
                    ToText(plan.srcs(step)[i]));
  }
  return sum;
}

// Text such as "out[0,4) f32 = all_reduce sum(in[0,4) f32) among all #0" or, at a rank that only gives, "reduce
// sum(in[0,4) f32), root 2 among 0 2 5 #1". The step may be malformed.
std::string NativeCall(const Plan& plan, const Step& step, const std::string& dsts, const std::string& srcs) {
  std::string text = absl::StrCat(dsts, dsts.empty() ? "" : " = ", Name(step.collective));
  if (Reduces(step.collective)) absl::StrAppend(&text, " ", Name(step.op));
  absl::StrAppend(&text, "(", srcs, ")", step.divisor == 1 ? "" : absl::StrCat(" / ", step.divisor));
  if (HasRoot(step.collective)) absl::StrAppend(&text, ", root ", step.peer);
  const std::string group = step.group > plan.groups.size() ? "?" : absl::StrJoin(plan.group_of(step), " ");
  return absl::StrCat(text, " among ", step.group == 0 ? "all" : group, " #", step.ordinal);
}

std::string Operands(const Plan& plan, const Step& step) {
  const std::string dsts = List(plan.dsts(step));
  const std::string srcs = List(plan.srcs(step));
  switch (step.kind) {
    case StepKind::kSend:
      return absl::StrCat(srcs, " to ", step.peer, " #", step.ordinal);
    case StepKind::kRecv:
      return absl::StrCat(dsts, " from ", step.peer == kAnySource ? "any" : absl::StrCat(step.peer), " #",
                          step.ordinal);
    case StepKind::kSignal:
      return absl::StrCat("#", step.ordinal);
    case StepKind::kWait:
      return absl::StrCat("for ", step.peer, " #", step.ordinal);
    case StepKind::kReduce:
      return absl::StrCat(dsts, " = ", Name(step.op), "(", srcs, ")",
                          step.op == ReduceOp::kAvg ? absl::StrCat(" / ", step.divisor) : "");
    case StepKind::kCopy:
      return absl::StrCat(dsts, " = ", srcs);
    case StepKind::kScale:
      return step.by_factor ? absl::StrCat(dsts, " = ", srcs, " · factor")
                            : absl::StrCat(dsts, " = ", srcs, " / ", step.divisor);
    case StepKind::kCombine:
      return absl::StrCat(dsts, " = ", Sum(plan, step), step.finite ? ", finite" : "");
    case StepKind::kEncode:
    case StepKind::kDecode:
      return absl::StrCat(dsts, step.accumulate ? " += " : " = ", CodecText(plan, step), "(", srcs, ")");
    case StepKind::kNative:
      return NativeCall(plan, step, dsts, srcs);
  }
  return "";
}

std::string Padded(absl::string_view text, std::size_t width) {
  return absl::StrCat(text, std::string(width > text.size() ? width - text.size() : 0, ' '));
}

// The legend of a graph, which says what arrows mean; a part of the graph.
constexpr absl::string_view kLegend = R"(  subgraph cluster_legend {
    label="legend: a box is a step, a frame is a rank";
    legend_first [label="a step"];
    legend_next [label="a step that waits for it"];
    legend_first -> legend_next;
    legend_send [label="send or signal"];
    legend_recv [label="recv or wait of a peer"];
    legend_send -> legend_recv [style=dashed];
    legend_native [label="native step"];
    legend_same [label="native step of a peer, of the same collective"];
    legend_native -> legend_same [style=dashed, dir=none];
  }
)";

}  // namespace

std::string ToText(const Ref& ref) {
  return absl::StrCat(Name(ref.space), ref.owner == kSelf ? "" : absl::StrCat("@", ref.owner), "[", ref.offset, ",",
                      ref.offset + ref.bytes, ") ", Name(ref.dtype));
}

std::string ToText(const Plan& plan, const Step& step) {
  return absl::StrCat(Name(step.kind), " ", Operands(plan, step));
}

std::string ToText(const Plan& plan) {
  std::string text = absl::StrCat(plan.name, " rank ", plan.rank, " of ", plan.size, ": ", ToString(plan.spec), "\nin ",
                                  plan.in_bytes, ", out ", plan.out_bytes, ", scratch ", plan.scratch_bytes, ", state ",
                                  plan.state_bytes, " bytes\n");
  std::vector<std::string> lines;
  std::size_t width = 0;
  const std::size_t digits = std::to_string(std::max<std::size_t>(plan.steps.size(), 1) - 1).size();
  for (const Step& step : plan.steps) {
    const std::string number = std::to_string(lines.size());
    lines.push_back(absl::StrCat(std::string(digits - number.size(), ' '), number, "  ", Padded(Name(step.kind), 6),
                                 "  ", Operands(plan, step)));
    if (lines.back().size() <= kWidest) width = std::max(width, lines.back().size());
  }
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const absl::Span<const StepId> deps = plan.deps_of(plan.steps[i]);
    absl::StrAppend(
        &text, deps.empty() ? lines[i] : absl::StrCat(Padded(lines[i], width), "  after ", absl::StrJoin(deps, " ")),
        "\n");
  }
  return text;
}

std::string ToGraphviz(absl::Span<const Plan> plans) {
  std::string text =
      absl::StrCat("digraph plan {\n  rankdir=LR;\n  node [shape=box, fontname=monospace, fontsize=10];\n", kLegend);
  auto node = [](Rank rank, std::size_t step) { return absl::StrCat("r", rank, "_", step); };
  std::map<std::tuple<StepKind, Rank, Rank, std::uint32_t>, std::string> sources;  // the sends and signals
  for (const Plan& plan : plans) {
    absl::StrAppend(&text, "  subgraph cluster_", plan.rank, " {\n    label=\"", plan.name, " rank ", plan.rank,
                    "\";\n");
    for (std::size_t i = 0; i < plan.steps.size(); ++i) {
      const Step& step = plan.steps[i];
      absl::StrAppend(&text, "    ", node(plan.rank, i), " [label=\"", i, ": ", ToText(plan, step), "\"];\n");
      for (StepId dep : plan.deps_of(step)) {
        absl::StrAppend(&text, "    ", node(plan.rank, dep), " -> ", node(plan.rank, i), ";\n");
      }
      if (step.kind == StepKind::kSend || step.kind == StepKind::kSignal) {
        sources[{step.kind, plan.rank, step.peer, step.ordinal}] = node(plan.rank, i);
      }
    }
    absl::StrAppend(&text, "  }\n");
  }
  for (const Plan& plan : plans) {
    for (std::size_t i = 0; i < plan.steps.size(); ++i) {
      const Step& step = plan.steps[i];
      if (step.kind != StepKind::kRecv && step.kind != StepKind::kWait) continue;
      const bool recv = step.kind == StepKind::kRecv;
      const auto source =
          sources.find({recv ? StepKind::kSend : StepKind::kSignal, step.peer, recv ? plan.rank : kSelf, step.ordinal});
      if (source == sources.end()) continue;
      absl::StrAppend(&text, "  ", source->second, " -> ", node(plan.rank, i), " [style=dashed];\n");
    }
  }
  for (const Meeting& meeting : MeetingsOf(plans)) {
    for (std::size_t i = 1; i < meeting.steps.size(); ++i) {
      const auto name = [&](const PlanStep& at) { return node(plans[at.plan].rank, at.step); };
      absl::StrAppend(&text, "  ", name(meeting.steps[i - 1]), " -> ", name(meeting.steps[i]),
                      " [style=dashed, dir=none];\n");
    }
  }
  return text + "}\n";
}

}  // namespace tutti
