#include "plan/form.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plan/limits.h"
#include "plan/native_ranges.h"
#include "plan/spaces.h"
#include "plan/writers.h"
#include "tutti/native.h"
#include "tutti/print.h"

namespace tutti {
namespace {

// Compares the fields that must be equal on all ranks; send and recv differ by nature.
absl::Status CheckAgreement(const Plan& a, const Plan& b) {
  auto differ = [&](absl::string_view field) {
    return absl::InvalidArgumentError(absl::StrCat("spec of rank ", b.rank, " differs from that of rank ", a.rank,
                                                   " in ", field, ": ", ToString(b.spec), "; ", ToString(a.spec)));
  };
  if (b.size != a.size) return differ("size of the world");
  if (IsPointToPoint(a.spec.collective) && IsPointToPoint(b.spec.collective)) return absl::OkStatus();
  if (b.spec.collective != a.spec.collective) return differ("collective");
  if (b.spec.dtype != a.spec.dtype) return differ("dtype");
  if (b.spec.op != a.spec.op) return differ("op");
  if (b.spec.count != a.spec.count) return differ("count");
  if (b.spec.root != a.spec.root) return differ("root");
  if (b.spec.in_place != a.spec.in_place) return differ("in_place");
  return absl::OkStatus();
}

// Checks that every rank of an all_to_all_v sends what the other rank expects. `plans` are those of all ranks, in
// order.
absl::Status CheckCounts(absl::Span<const Plan> plans) {
  if (plans[0].spec.collective != Collective::kAllToAllV) return absl::OkStatus();
  for (std::size_t from = 0; from < plans.size(); ++from) {
    for (std::size_t to = 0; to < plans.size(); ++to) {
      const std::int64_t sends = plans[from].spec.send_counts[to];
      const std::int64_t expects = plans[to].spec.recv_counts[from];
      if (sends == expects) continue;
      return absl::InvalidArgumentError(absl::StrCat("spec of rank ", to, " differs in recv_counts: it expects ",
                                                     expects, " elements of rank ", from, ", which sends ", sends));
    }
  }
  return absl::OkStatus();
}

constexpr std::size_t kSpaces = 5;  // in, out, scratch, state and block

// The reason why the type of `ref` is none, and why `ref` does not hold whole elements of its type; empty where it
// does.
std::string TypeFault(const Ref& ref) {
  if (SizeOf(ref.dtype) != 0) return "";
  return absl::StrCat("a ref has dtype ", static_cast<int>(ref.dtype), ", which is none");
}
std::string WidthFault(const Ref& ref) {
  const std::int64_t width = SizeOf(ref.dtype);
  if (ref.offset % width == 0 && ref.bytes % width == 0) return "";
  return absl::StrCat(ToText(ref), ": both ends must be multiples of ", width, " bytes, the size of ", Name(ref.dtype));
}

// Checks the steps of one plan against the spaces of all plans.
class Former {
 public:
  explicit Former(absl::Span<const Plan> plans) : plans_(plans), by_rank_(plans[0].size, nullptr) {
    for (const Plan& plan : plans) by_rank_[plan.rank] = &plan;
  }

  absl::Status Check(const Plan& plan) {
    // A send or recv is one message, because messages of one tag match in the order in which they were posted: two ends
    // with several steps each could post in different orders.
    if (IsPointToPoint(plan.spec.collective) && plan.steps.size() != 1) {
      return absl::FailedPreconditionError(absl::StrCat("rank ", plan.rank, ": a plan of ", Name(plan.spec.collective),
                                                        " must have 1 step, but has ", plan.steps.size()));
    }
    std::uint32_t signals = 0;
    std::vector<std::uint32_t> sends(static_cast<std::size_t>(std::max(plan.size, 0)));  // by peer
    std::vector<std::uint32_t> natives(plan.groups.size() + 1);                          // by group
    for (StepId id = 0; id < plan.steps.size(); ++id) {
      const Step& step = plan.steps[id];
      std::string what = Pools(plan, step, id);
      if (what.empty()) what = Fields(plan, step);
      if (what.empty()) what = Refs(plan, step);
      if (what.empty()) what = Types(plan, step);
      if (what.empty() && step.kind == StepKind::kSignal && step.ordinal != ++signals) {
        what = absl::StrCat("ordinal ", step.ordinal, " of a signal must be ", signals,
                            ": the signals of a rank are numbered 1, 2, … in the order of its steps");
      }
      if (what.empty() && signals > kMaxSignals) {
        what = absl::StrCat("a rank makes at most ", kMaxSignals, " signals in a run of a plan");
      }
      if (what.empty() && step.kind == StepKind::kSend && ++sends[step.peer] > kMaxMessagesToAPeer) {
        what = absl::StrCat("a rank sends at most ", kMaxMessagesToAPeer, " messages to one peer in a run of a plan");
      }
      if (what.empty() && step.kind == StepKind::kNative && step.ordinal != natives[step.group]++) {
        what = absl::StrCat("ordinal ", step.ordinal, " of a native step must be ", natives[step.group] - 1,
                            ": the native steps of a group are numbered 0, 1, … in the order of a rank's steps");
      }
      if (what.empty()) continue;
      return absl::FailedPreconditionError(
          absl::StrCat("rank ", plan.rank, " step ", id, " (", Text(plan, step), ")", WriterOf(plan, id), ": ", what));
    }
    return absl::OkStatus();
  }

 private:
  static bool InPool(std::uint64_t first, std::uint64_t n, std::size_t size) { return first + n <= size; }

  // The text of a step; only the name of its kind when its lists are broken.
  static std::string Text(const Plan& plan, const Step& step) {
    const bool printable = InPool(step.first_ref, step.num_dsts + step.num_srcs, plan.refs.size());
    return printable ? ToText(plan, step) : std::string(Name(step.kind));
  }

  static std::string Pools(const Plan& plan, const Step& step, StepId id) {
    if (!InPool(step.first_ref, step.num_dsts + step.num_srcs, plan.refs.size())) {
      return absl::StrCat("refs [", step.first_ref, ", ", step.first_ref + step.num_dsts + step.num_srcs,
                          ") must lie in the pool of ", plan.refs.size(), " refs of the plan");
    }
    if (!InPool(step.first_dep, step.num_deps, plan.deps.size())) {
      return absl::StrCat("deps [", step.first_dep, ", ", step.first_dep + step.num_deps, ") must lie in the pool of ",
                          plan.deps.size(), " deps of the plan");
    }
    const bool combines = step.kind == StepKind::kCombine;
    if (!InPool(step.first_coefficient, combines ? step.num_srcs : 0, plan.coefficients.size())) {
      return absl::StrCat("coefficients [", step.first_coefficient, ", ", step.first_coefficient + step.num_srcs,
                          ") must lie in the pool of ", plan.coefficients.size(), " coefficients of the plan");
    }
    for (StepId dep : plan.deps_of(step)) {
      if (dep >= id) return absl::StrCat("dep ", dep, " must be a step before step ", id);
    }
    return "";
  }

  // Whether `value` is one of the `count` values of its type.
  template <typename Enum>
  static bool Exists(Enum value, std::size_t count) {
    return static_cast<std::size_t>(value) < count;
  }

  // Fields that a kind does not use must hold their default, so that equal plans are equal bytes.
  static std::string Fields(const Plan& plan, const Step& step) {
    struct Shape {
      int dsts, srcs;  // -1: one or more; -2: at most one
      bool peer, ordinal, divisor, codec;
    };
    static constexpr std::array<Shape, 11> kShapes = {{{0, 1, true, true, false, false},     // send
                                                       {1, 0, true, true, false, false},     // recv
                                                       {0, 0, false, true, false, false},    // signal
                                                       {0, 0, true, true, false, false},     // wait
                                                       {-1, -1, false, false, true, false},  // reduce
                                                       {-1, 1, false, false, false, false},  // copy
                                                       {1, 1, false, false, true, false},    // scale
                                                       {1, -1, false, false, false, false},  // combine
                                                       {1, 1, false, false, false, true},    // encode
                                                       {1, 1, false, false, false, true},    // decode
                                                       {-2, -2, true, true, true, false}}};  // native
    if (!Exists(step.kind, kShapes.size())) return "there is no such kind";
    if (!Exists(step.op, kAllReduceOps.size())) return absl::StrCat("there is no op ", static_cast<int>(step.op));
    if (!Exists(step.collective, kAllCollectives.size()))
      return absl::StrCat("there is no collective ", static_cast<int>(step.collective));
    const Shape& shape = kShapes[static_cast<std::size_t>(step.kind)];
    const auto fits = [](int needed, int n) {
      if (needed == -2) return n <= 1;
      return needed == -1 ? n > 0 : n == needed;
    };
    const bool some = step.num_dsts + step.num_srcs > 0 || step.kind != StepKind::kNative;
    if (!fits(shape.dsts, step.num_dsts) || !fits(shape.srcs, step.num_srcs) || !some) {
      const auto needed = [](int n) {
        if (n == -2) return std::string("at most 1, not 0 of both,");
        return n == -1 ? std::string("at least 1") : absl::StrCat(n);
      };
      return absl::StrCat(step.num_dsts, " dsts and ", step.num_srcs, " srcs; a step of kind ", Name(step.kind),
                          " needs ", needed(shape.dsts), " and ", needed(shape.srcs));
    }
    const auto unused = [&](absl::string_view field, const auto& found, const auto& expected) {
      return absl::StrCat(field, " ", found, " must be ", expected, ": a step of kind ", Name(step.kind),
                          " does not use ", field);
    };
    if (step.kind == StepKind::kNative) return NativeFields(plan, step);
    if (step.collective != Collective::kAllReduce)
      return unused("collective", Name(step.collective), Name(Collective::kAllReduce));
    if (step.group != 0) return unused("group", step.group, 0);
    if (shape.peer && (step.peer < 0 || step.peer >= plan.size || step.peer == plan.rank)) {
      return absl::StrCat("peer ", step.peer, " must be in 0…", plan.size - 1, " and not ", plan.rank,
                          ", the rank of the step");
    }
    if (!shape.peer && step.peer != kSelf) return unused("peer", step.peer, kSelf);
    if (!shape.ordinal && step.ordinal != 0) return unused("ordinal", step.ordinal, 0);
    const bool divides = step.kind == StepKind::kScale || step.op == ReduceOp::kAvg;
    if (step.divisor < 1) return absl::StrCat("divisor ", step.divisor, " must be at least 1");
    if (step.kind == StepKind::kReduce && !divides && step.divisor != 1)
      return absl::StrCat("divisor ", step.divisor, " must be 1: only op avg divides");
    if (!divides && step.divisor != 1) return unused("divisor", step.divisor, 1);
    if (step.op != ReduceOp::kSum && step.kind != StepKind::kReduce)
      return unused("op", Name(step.op), Name(ReduceOp::kSum));
    if (step.first_coefficient != 0 && step.kind != StepKind::kCombine)
      return unused("first_coefficient", step.first_coefficient, 0);
    if (step.finite && step.kind != StepKind::kCombine) return unused("finite", "true", "false");
    if (step.by_factor && step.kind != StepKind::kScale) return unused("by_factor", "true", "false");
    if (step.by_factor && step.divisor != 1)
      return absl::StrCat("divisor ", step.divisor, " must be 1 where by_factor is true");
    if (step.accumulate && step.kind != StepKind::kDecode) return unused("accumulate", "true", "false");
    if (!shape.codec && step.codec != 0) return unused("codec", step.codec, 0);
    if (shape.codec && step.codec >= plan.codecs.size()) {
      return absl::StrCat("codec ", step.codec, " must name one of the ", plan.codecs.size(), " codecs of the plan");
    }
    return "";
  }

  static std::string NativeFields(const Plan& plan, const Step& step) {
    const Step plain{.kind = StepKind::kNative,
                     .op = step.op,
                     .collective = step.collective,
                     .ordinal = step.ordinal,
                     .peer = step.peer,
                     .divisor = step.divisor,
                     .first_ref = step.first_ref,
                     .num_dsts = step.num_dsts,
                     .num_srcs = step.num_srcs,
                     .group = step.group,
                     .first_dep = step.first_dep,
                     .num_deps = step.num_deps};
    if (!(step == plain))
      return "accumulate, finite, by_factor, codec and first_coefficient of a native step must be 0";
    if (!HasNativeForm(step.collective)) {
      return absl::StrCat("collective ", Name(step.collective), " has no native form");
    }
    if (step.group > plan.groups.size()) {
      return absl::StrCat("group ", step.group, " must be in 0…", plan.groups.size(), ", the groups of the plan");
    }
    std::vector<bool> in_group(static_cast<std::size_t>(plan.size));
    for (const Rank member : plan.group_of(step)) {
      const bool exists = member >= 0 && member < plan.size;
      if (!exists || in_group[static_cast<std::size_t>(member)]) {
        return absl::StrCat("group ", step.group, " has rank ", member, exists ? " twice" : ", which does not exist");
      }
      in_group[static_cast<std::size_t>(member)] = true;
    }
    if (NativePlaceOf(plan, step, plan.rank) < 0) {
      return absl::StrCat("group ", step.group, " must contain rank ", plan.rank, ", the rank of the step");
    }
    const int size = NativeSizeOf(plan, step);
    if (size < 2) return "the group of a native step must have at least 2 ranks";
    const bool rooted = HasRoot(step.collective);
    if (rooted ? NativePlaceOf(plan, step, step.peer) < 0 : step.peer != kSelf) {
      return absl::StrCat("peer ", step.peer, " must be ",
                          rooted ? "the root, a rank of the group" : absl::StrCat(kSelf, ": there is no root"));
    }
    const bool reduces = Reduces(step.collective);
    if (!reduces && step.op != ReduceOp::kSum) {
      return absl::StrCat("op ", Name(step.op), " must be sum: ", Name(step.collective), " does not reduce");
    }
    const int divisor = reduces && step.op == ReduceOp::kAvg ? size : 1;
    if (step.divisor != divisor) return absl::StrCat("divisor ", step.divisor, " must be ", divisor);
    return "";
  }

  // The ranges and types of a native step, each of which has passed Range.
  static std::string NativeRanges(const Plan& plan, const Step& step) {
    const CollectiveSpec spec = NativeSpecOf(plan, step);
    const Rank place = NativePlaceOf(plan, step, plan.rank);
    const int size = NativeSizeOf(plan, step);
    if (absl::Status valid = Validate(spec, place, size); !valid.ok()) return std::string(valid.message());
    if (step.op == ReduceOp::kPremulSum) return "op premul_sum: a native step sums products that other steps have made";
    return NativeRangeFault(spec, place, size, step.num_srcs > 0 ? plan.srcs(step)[0] : Ref(),
                            step.num_dsts > 0 ? plan.dsts(step)[0] : Ref());
  }

  std::string Range(const Plan& plan, const Ref& ref, bool written) const {
    if (std::string what = TypeFault(ref); !what.empty()) return what;
    if (!Exists(ref.space, kSpaces))
      return absl::StrCat("a ref has space ", static_cast<int>(ref.space), ", which is none");
    const Rank owner = ref.owner == kSelf ? plan.rank : ref.owner;
    if (ref.owner == plan.rank || owner < 0 || owner >= plan.size || by_rank_[owner] == nullptr) {
      return absl::StrCat(ToText(ref), ": owner ", ref.owner, " must be another rank that takes part, or ", kSelf,
                          " for rank ", plan.rank, " itself");
    }
    if (ref.owner != kSelf && ref.space == Space::kState)
      return absl::StrCat(ToText(ref), ": rank ", plan.rank, " cannot read or write state of rank ", ref.owner);
    if (ref.space == Space::kBlock && (ref.owner == kSelf || plan.spec.collective != Collective::kAllToAllV))
      return absl::StrCat(ToText(ref), ": only an all_to_all_v has blocks, and only in the memory of peers");
    if (ref.space == Space::kBlock && plan.size > kMaxRanksWithBlocks)
      return absl::StrCat(ToText(ref), ": plans for more than ", kMaxRanksWithBlocks, " ranks have no blocks");
    const Plan& there = *by_rank_[owner];
    const std::int64_t block = ref.space == Space::kBlock ? BlockOf(there.spec, plan.rank).bytes : 0;
    const std::array<std::int64_t, kSpaces> sizes = {there.in_bytes, there.out_bytes, there.scratch_bytes,
                                                     there.state_bytes, block};
    const std::int64_t size = sizes[static_cast<std::size_t>(ref.space)];
    // The message of a send or recv may be empty.
    const std::int64_t least = IsPointToPoint(plan.spec.collective) ? 0 : 1;
    if (ref.offset < 0 || ref.bytes < least || ref.bytes > size || ref.offset > size - ref.bytes) {
      return absl::StrCat(ToText(ref), " must hold at least ", least, " bytes and lie in the ", size,
                          " bytes of its space");
    }
    if (std::string what = WidthFault(ref); !what.empty()) return what;
    if (ref.space == Space::kState && !InOneState(plan, ref))
      return absl::StrCat(ToText(ref), " lies in no state of the plan that holds ", Name(ref.dtype));
    if (written && (ref.space == Space::kIn || ref.space == Space::kBlock))
      return absl::StrCat(ToText(ref), ": the input is read-only");
    return "";
  }

  static bool InOneState(const Plan& plan, const Ref& ref) {
    return std::any_of(plan.states.begin(), plan.states.end(), [&](const StateRange& state) {
      return state.range.dtype == ref.dtype && ref.offset >= state.range.offset &&
             ref.offset + ref.bytes <= state.range.offset + state.range.bytes;
    });
  }

  std::string Refs(const Plan& plan, const Step& step) const {
    for (const Ref& dst : plan.dsts(step)) {
      if (std::string what = Range(plan, dst, true); !what.empty()) return what;
    }
    for (const Ref& src : plan.srcs(step)) {
      if (std::string what = Range(plan, src, false); !what.empty()) return what;
    }
    if (step.kind == StepKind::kNative) return NativeRanges(plan, step);
    const bool moves = step.kind == StepKind::kSend || step.kind == StepKind::kRecv;
    for (const Ref& ref : absl::MakeSpan(plan.refs).subspan(step.first_ref, step.num_dsts + step.num_srcs)) {
      if (moves && ref.owner != kSelf)
        return absl::StrCat(ToText(ref), ": owner ", ref.owner, " must be ", kSelf, ", because rank ", plan.rank,
                            " sends from and receives into its own memory only");
    }
    for (std::size_t i = 0; i < step.num_dsts; ++i) {
      const Ref& dst = plan.dsts(step)[i];
      auto overlaps = [&](const Ref& ref) {
        return ref.owner == dst.owner && ref.space == dst.space && ref.offset < dst.offset + dst.bytes &&
               dst.offset < ref.offset + ref.bytes;
      };
      for (const Ref& other : plan.dsts(step).first(i)) {
        if (overlaps(other)) return absl::StrCat(ToText(dst), " overlaps ", ToText(other));
      }
      for (const Ref& src : plan.srcs(step)) {
        if (overlaps(src) && !(src == dst)) return absl::StrCat(ToText(dst), " overlaps ", ToText(src));
      }
    }
    return "";
  }

  static std::string Types(const Plan& plan, const Step& step) {
    if (step.num_srcs == 0 || step.num_dsts == 0 || step.kind == StepKind::kNative) return "";
    if (step.kind == StepKind::kEncode || step.kind == StepKind::kDecode) return CodecTypes(plan, step);
    const Ref& dst = plan.dsts(step)[0];
    const Ref& src = plan.srcs(step)[0];
    for (const Ref& ref : plan.dsts(step)) {
      if (ref.dtype != dst.dtype || ref.count() != dst.count()) {
        return absl::StrCat("dst ", ToText(ref), " must have the dtype and length of dst ", ToText(dst));
      }
    }
    for (const Ref& ref : plan.srcs(step)) {
      if (ref.dtype != src.dtype || ref.count() != dst.count()) {
        return absl::StrCat("src ", ToText(ref), " must hold ", dst.count(), " elements of ", Name(src.dtype));
      }
    }
    const bool rounds =
        step.kind == StepKind::kReduce && src.dtype == DType::kF32 && AccumulatorOf(dst.dtype) == DType::kF32;
    if (step.kind == StepKind::kCombine && !IsFloating(src.dtype)) {
      return absl::StrCat("srcs of ", Name(src.dtype), " cannot be combined; a floating dtype is needed");
    }
    if (step.kind == StepKind::kCopy && !Converts(src.dtype, dst.dtype)) {
      return absl::StrCat("src of ", Name(src.dtype), " cannot be converted into ", Name(dst.dtype));
    }
    if (step.kind != StepKind::kCopy && src.dtype != dst.dtype && !rounds) {
      return absl::StrCat("dsts of ", Name(dst.dtype), " must have the dtype of the srcs, ", Name(src.dtype),
                          "; only a reduce may turn f32 into f16 or bf16");
    }
    if (step.kind == StepKind::kReduce && (!HasOp(src.dtype, step.op) || step.op == ReduceOp::kPremulSum)) {
      return absl::StrCat("op ", Name(step.op), " cannot reduce srcs of ", Name(src.dtype));
    }
    if (step.kind == StepKind::kScale && !HasOp(src.dtype, step.by_factor ? ReduceOp::kPremulSum : ReduceOp::kAvg)) {
      return absl::StrCat("src of ", Name(src.dtype), " cannot be ", step.by_factor ? "multiplied" : "divided");
    }
    return "";
  }

  static std::string CodecTypes(const Plan& plan, const Step& step) {
    const CodecChoice& choice = plan.codecs[step.codec];
    const bool encodes = step.kind == StepKind::kEncode;
    const Ref& encoded = encodes ? plan.dsts(step)[0] : plan.srcs(step)[0];
    const Ref& plain = encodes ? plan.srcs(step)[0] : plan.dsts(step)[0];
    if (choice.codec == nullptr) return absl::StrCat("codec ", step.codec, " of the plan is null");
    if (absl::Status valid = choice.codec->validate(choice.options); !valid.ok()) return std::string(valid.message());
    if (encoded.dtype != DType::kU8 || plain.dtype != DType::kF32) {
      return absl::StrCat("encoded range ", ToText(encoded), " must be of u8 and plain range ", ToText(plain),
                          " of f32");
    }
    const std::int64_t need = choice.codec->encoded_bytes(plain.count(), choice.options);
    if (encoded.bytes != need) {
      return absl::StrCat("encoded range ", ToText(encoded), " must hold ", need, " bytes, in which ", plain.count(),
                          " elements are encoded");
    }
    return "";
  }

  absl::Span<const Plan> plans_;
  std::vector<const Plan*> by_rank_;
};

absl::Status CheckStates(absl::Span<const Plan> plans) {
  for (const Plan& plan : plans) {
    std::int64_t end = 0;
    for (const StateRange& state : plan.states) {
      const Ref& range = state.range;
      std::string what = TypeFault(range);
      if (what.empty() && range.bytes != 0) what = WidthFault(range);
      if (!what.empty()) {
        return absl::FailedPreconditionError(
            absl::StrCat("rank ", plan.rank, ": ", Name(state.kind), " ", state.name, ": ", what));
      }
      const bool replica = state.kind == StateKind::kReplica;
      // A range of no elements may have any offset.
      const bool apart = range.bytes == 0 || (range.offset >= end && range.offset + range.bytes <= plan.state_bytes);
      const bool lies = range.space == Space::kState && range.owner == kSelf && range.bytes >= 0 && apart;
      const bool named = replica ? state.of >= 0 && state.of < plan.size : state.of == kSelf;
      const std::int64_t room = replica ? 0 : plan.spec.count - range.count();  // for the elements before the first
      const bool belongs = range.bytes == 0 || (state.first_element >= 0 && state.first_element <= room);
      const bool divides = replica ? state.divisor == 1 : state.divisor >= 1;
      const bool unique = std::count_if(plan.states.begin(), plan.states.end(),
                                        [&](const StateRange& other) { return other.name == state.name; }) == 1;
      if (lies && named && belongs && divides && unique) {
        end = std::max(end, range.offset + range.bytes);
        continue;
      }
      const std::string expected =
          !lies    ? absl::StrCat(ToText(range), " must lie in state[", end, ",", plan.state_bytes,
                                  "), behind the states before it")
          : !named ? absl::StrCat("of ", state.of, " must be ",
                                  replica ? absl::StrCat("in 0…", plan.size - 1) : absl::StrCat(kSelf))
          : !belongs
              ? absl::StrCat("first_element ", state.first_element, " must be in 0…", room, ", since the bucket has ",
                             plan.spec.count, " elements and the ", Name(state.kind), " ", range.count())
          : !divides ? absl::StrCat("divisor ", state.divisor, " must be ", replica ? "1" : "at least 1")
                     : "the name must be that of one state";
      return absl::FailedPreconditionError(
          absl::StrCat("rank ", plan.rank, ": ", Name(state.kind), " ", state.name, ": ", expected));
    }
  }
  return absl::OkStatus();
}

// Mixing must keep weights on which all ranks agree (rows sum to 1) and the ranks' average (columns sum to 1).
absl::Status CheckMixing(absl::Span<const Plan> plans) {
  if (std::all_of(plans.begin(), plans.end(), [](const Plan& plan) { return plan.mixing.empty(); })) {
    return absl::OkStatus();
  }
  std::vector<double> columns(plans.size(), 0);
  for (const Plan& plan : plans) {
    if (plan.mixing.size() != plans.size()) {
      return absl::FailedPreconditionError(absl::StrCat("rank ", plan.rank, ": mixing has ", plan.mixing.size(),
                                                        " weights, must have one per rank, ", plans.size()));
    }
    if (!plan.mixing_nodes.empty() && plan.mixing_nodes.size() != plans.size()) {
      return absl::FailedPreconditionError(absl::StrCat("rank ", plan.rank, ": mixing_nodes names the nodes of ",
                                                        plan.mixing_nodes.size(), " ranks, not of ", plans.size()));
    }
    for (std::size_t from = 0; from < plans.size(); ++from) columns[from] += plan.mixing[from];
    const double row = std::accumulate(plan.mixing.begin(), plan.mixing.end(), 0.0);
    if (std::abs(row - 1) > kRoundingOfShares) {
      return absl::FailedPreconditionError(
          absl::StrCat("rank ", plan.rank, ": the weights of its mixing sum to ", row, ", must be 1"));
    }
  }
  for (std::size_t from = 0; from < plans.size(); ++from) {
    if (std::abs(columns[from] - 1) <= kRoundingOfShares) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("the weights of rank ", from, " in the mixing of all sum to ", columns[from], ", must be 1"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckForm(absl::Span<const Plan> plans) {
  if (plans.empty()) return absl::InvalidArgumentError("plans is empty; it needs one plan per rank");
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const Plan& plan = plans[i];
    if (absl::Status status = Validate(plan.spec, plan.rank, plan.size); !status.ok()) return status;
    if (absl::Status status = CheckAgreement(plans[0], plan); !status.ok()) return status;
    const bool complete = IsPointToPoint(plan.spec.collective) ||
                          (plans.size() == static_cast<std::size_t>(plan.size) && plan.rank == static_cast<Rank>(i));
    if (!complete || (i > 0 && plan.rank <= plans[i - 1].rank)) {
      return absl::InvalidArgumentError(absl::StrCat("plans[", i, "] is of rank ", plan.rank, " of ", plan.size, "; ",
                                                     plans.size(), " plans must be one per rank, in order"));
    }
    const std::int64_t in_bytes = SpaceBytes(plan.spec, Space::kIn, plan.rank, plan.size);
    const std::int64_t out_bytes = SpaceBytes(plan.spec, Space::kOut, plan.rank, plan.size);
    if (plan.in_bytes != in_bytes || plan.out_bytes != out_bytes || plan.scratch_bytes < 0 || plan.state_bytes < 0) {
      return absl::FailedPreconditionError(
          absl::StrCat("rank ", plan.rank, ": in_bytes ", plan.in_bytes, ", out_bytes ", plan.out_bytes,
                       ", scratch_bytes ", plan.scratch_bytes, " and state_bytes ", plan.state_bytes, " must be ",
                       in_bytes, ", ", out_bytes, ", at least 0 and at least 0, for ", ToString(plan.spec)));
    }
  }
  if (absl::Status status = CheckCounts(plans); !status.ok()) return status;
  if (absl::Status status = CheckStates(plans); !status.ok()) return status;
  if (absl::Status status = CheckMixing(plans); !status.ok()) return status;
  Former former(plans);
  for (const Plan& plan : plans) {
    if (absl::Status status = former.Check(plan); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace tutti
