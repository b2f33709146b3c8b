#include "plan/values.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "plan/contents.h"
#include "plan/promise.h"
#include "plan/spaces.h"
#include "plan/symbols.h"
#include "plan/writers.h"
#include "tutti/native.h"
#include "tutti/print.h"

namespace tutti {
namespace {

// How far the check has come is told after every so many steps.
constexpr Position kStepsBetweenNews = 1024;

class Simulation {
 public:
  Simulation(absl::Span<const Plan> plans, const Order& order)
      : plans_(plans), order_(order), memory_(plans.size()), used_(order.size(), false), messages_(order.size()) {
    plan_of_rank_.assign(plans[0].size, -1);
    for (std::size_t p = 0; p < plans.size(); ++p) {
      const Plan& plan = plans[p];
      plan_of_rank_[plan.rank] = static_cast<int>(p);
      const Ref in = InputOf(plan.spec, plan.rank, plan.size);
      const Value input = symbols_.Input(plan.rank, in.dtype, 0);
      if (in.bytes > 0) At(static_cast<int>(p), in).Write(in, {{{in.count(), input}}}, Order::kNone);
      for (const StateRange& state : plan.states) {
        const Ref& range = state.range;
        if (range.bytes == 0) continue;
        const Value before = state.kind == StateKind::kReplica
                                 ? symbols_.Replica(state.of, range.dtype, 0)
                                 : symbols_.State(plan.rank, range.dtype, range.offset / SizeOf(range.dtype));
        At(static_cast<int>(p), range).Write(range, {{{range.count(), before}}}, Order::kNone);
      }
    }
  }

  absl::Status Check(absl::FunctionRef<void(double)> done) {
    for (Position at = 0; at < order_.size(); ++at) {
      if (at % kStepsBetweenNews == 0) done(static_cast<double>(at) / order_.size());
      looked_at_ = at;
      if (!Execute(at)) return absl::FailedPreconditionError(absl::StrCat(order_.Describe(looked_at_), ": ", error_));
    }
    // The step that wrote a wrong result may have done right with what other steps gave it: any schedule that has
    // written a part of the plan may have made the result wrong.
    if (absl::Status status = CheckPromises(); !status.ok()) {
      return {status.code(), absl::StrCat(status.message(), WritersOf(plans_))};
    }
    return CheckUse();
  }

 private:
  bool barrier() const { return plans_[0].spec.collective == Collective::kBarrier; }

  Contents& At(int plan, const Ref& ref) {
    const int owner = ref.owner == kSelf ? plan : plan_of_rank_[ref.owner];
    return memory_[owner][static_cast<std::size_t>(ref.space)];
  }

  // Reads the elements of `ref`; sets error_ when a computation may not use them.
  std::vector<ValueRun> Read(Position at, const Ref& ref, bool encoded) {
    std::vector<ValueRun> runs = At(order_.plan_at(at), ref).Read(ref, error_);
    const Step& step = order_.step(at);
    const bool copies = step.kind == StepKind::kCopy || (step.kind == StepKind::kNative && !Reduces(step.collective));
    const bool moves = step.kind == StepKind::kSend || (copies && ref.dtype == DType::kU8);
    // Blocks of a native collective have one length, which some of the messages in them may not fill.
    const bool may_be_nothing = moves && step.kind == StepKind::kNative;
    for (const ValueRun& run : runs) {
      if (run.writer != Order::kNone) used_[run.writer] = true;
      const Symbol::Kind holds = symbols_[run.value.symbol].kind;
      if (holds == Symbol::Kind::kNothing && !barrier() && !may_be_nothing) {
        error_ = absl::StrCat(ToText(ref), " is not initialised");
      } else if (!moves && (holds == Symbol::Kind::kEncoded) != encoded) {
        error_ = absl::StrCat(ToText(ref), encoded ? " is no message of a codec" : " holds bytes of a codec");
      }
    }
    return runs;
  }

  void Write(Position at, const Ref& ref, absl::Span<const ValueRun> runs) {
    At(order_.plan_at(at), ref).Write(ref, runs, at);
  }

  bool Execute(Position at) {
    const Plan& plan = order_.plan(at);
    const Step& step = order_.step(at);
    if (step.kind == StepKind::kNative) return ExecuteNative(at);
    std::vector<std::vector<ValueRun>> operands;
    for (const Ref& src : plan.srcs(step)) operands.push_back(Read(at, src, step.kind == StepKind::kDecode));
    if (step.accumulate) operands.insert(operands.begin(), Read(at, plan.dsts(step)[0], false));
    if (!error_.empty()) return false;
    std::vector<ValueRun> result;
    switch (step.kind) {
      case StepKind::kSend:
        messages_[at] = std::move(operands[0]);
        return true;
      case StepKind::kSignal:
      case StepKind::kWait:
      case StepKind::kNative:
        return true;
      case StepKind::kRecv:
        result = std::move(messages_[order_.source(at)]);
        break;
      case StepKind::kCopy:
        result = Converted(std::move(operands[0]), plan.srcs(step)[0].dtype, plan.dsts(step)[0].dtype);
        break;
      case StepKind::kReduce:
      case StepKind::kScale:
      case StepKind::kCombine:
        result = Computed(operands, plan, step, plan.srcs(step)[0].dtype, plan.dsts(step)[0].dtype);
        break;
      case StepKind::kEncode:
        result = Encoded(operands[0], plan.codecs[step.codec], plan.dsts(step)[0].bytes, at);
        break;
      case StepKind::kDecode:
        result = Decoded(operands.back(), plan.codecs[step.codec], plan.dsts(step)[0].count());
        if (step.accumulate && error_.empty()) {
          operands[1] = std::move(result);
          result = Computed(operands, plan, step, DType::kF32, DType::kF32);
        }
        break;
    }
    for (const Ref& dst : plan.dsts(step)) Write(at, dst, result);
    return error_.empty();
  }

  // Writes what the rank of a native step gets. The inputs of all ranks are read when the first of them ends: all have
  // begun by then, and no later step of any rank has run.
  bool ExecuteNative(Position at) {
    const Plan& plan = order_.plan(at);
    const Step& step = order_.step(at);
    std::vector<std::vector<ValueRun>>& inputs = native_inputs_[order_.source(at)];
    if (inputs.empty()) {
      for (const Position giver : order_.partners(at)) {
        looked_at_ = giver;
        const absl::Span<const Ref> srcs = order_.plan(giver).srcs(order_.step(giver));
        inputs.push_back(srcs.empty() ? std::vector<ValueRun>() : Read(giver, srcs[0], /*encoded=*/false));
        if (!error_.empty()) return false;
      }
      looked_at_ = at;
    }
    if (step.num_dsts == 0) return true;
    const std::vector<ValueRun> result = NativeResult(plan, step, inputs, order_.source(at));
    if (error_.empty()) Write(at, plan.dsts(step)[0], result);
    return error_.empty();
  }

  std::vector<ValueRun> NativeResult(const Plan& plan, const Step& step, absl::Span<const std::vector<ValueRun>> inputs,
                                     std::int64_t number) {
    const CollectiveSpec spec = NativeSpecOf(plan, step);
    const Rank place = NativePlaceOf(plan, step, plan.rank);
    std::vector<ValueRun> result;
    const auto append = [&](absl::Span<const ValueRun> runs) {
      for (ValueRun run : runs) {
        run.writer = Order::kNone;
        Append(result, run);
      }
    };
    switch (spec.collective) {
      case Collective::kAllReduce:
      case Collective::kReduce:
        return NativeFold(inputs, step, number, spec.dtype);
      case Collective::kReduceScatter:
        return Slice(NativeFold(inputs, step, number, spec.dtype), place * spec.count, spec.count);
      case Collective::kBroadcast:
        append(inputs[static_cast<std::size_t>(spec.root)]);
        return result;
      case Collective::kScatter:
        append(Slice(inputs[static_cast<std::size_t>(spec.root)], place * spec.count, spec.count));
        return result;
      case Collective::kAllToAll:
        for (const std::vector<ValueRun>& input : inputs) append(Slice(input, place * spec.count, spec.count));
        return result;
      default:  // all_gather and gather
        for (const std::vector<ValueRun>& input : inputs) append(input);
        return result;
    }
  }

  // The elements of all inputs, combined by the native collective with this number.
  std::vector<ValueRun> NativeFold(absl::Span<const std::vector<ValueRun>> inputs, const Step& step,
                                   std::int64_t number, DType dtype) {
    const ReduceOp op = step.op == ReduceOp::kAvg ? ReduceOp::kSum : step.op;
    return ElementByElement(inputs, IsArithmetic(op), [&](absl::Span<const Value> values) {
      return symbols_.Native(op, step.divisor, dtype, values, number);
    });
  }

  std::vector<ValueRun> Converted(std::vector<ValueRun> runs, DType from, DType to) {
    for (ValueRun& run : runs) run.value = symbols_.Convert(run.value, from, to);
    return runs;
  }

  static bool IsArithmetic(ReduceOp fold) { return fold == ReduceOp::kSum || fold == ReduceOp::kProd; }

  // What `compute` makes of the operands, element by element, in pieces in which every operand is one run. With
  // `arithmetic` no operand may be rounded already.
  std::vector<ValueRun> ElementByElement(absl::Span<const std::vector<ValueRun>> operands, bool arithmetic,
                                         absl::FunctionRef<Value(absl::Span<const Value>)> compute) {
    std::vector<ValueRun> result;
    std::vector<std::size_t> run(operands.size(), 0);
    std::vector<std::int64_t> done(operands.size(), 0);  // elements of the current run
    std::vector<Value> values(operands.size());
    while (run[0] < operands[0].size()) {
      std::int64_t n = std::numeric_limits<std::int64_t>::max();
      for (std::size_t i = 0; i < operands.size(); ++i) {
        const ValueRun& r = operands[i][run[i]];
        n = std::min(n, r.count - done[i]);
        values[i] = r.value + done[i];
        if (arithmetic && symbols_[r.value.symbol].rounded) {
          error_ = absl::StrCat("src holds ", symbols_.Describe(values[i]),
                                ", which is rounded already: a result may be rounded only once");
          return {};
        }
      }
      Append(result, {n, compute(values)});
      for (std::size_t i = 0; i < operands.size(); ++i) {
        done[i] += n;
        if (done[i] < operands[i][run[i]].count) continue;
        ++run[i];
        done[i] = 0;
      }
    }
    return result;
  }

  std::vector<ValueRun> Computed(absl::Span<const std::vector<ValueRun>> operands, const Plan& plan, const Step& step,
                                 DType from, DType to) {
    const ReduceOp fold = step.op == ReduceOp::kAvg ? ReduceOp::kSum : step.op;
    const DType in = AccumulatorOf(from);  // elements of 16-bit types are computed in f32
    const bool computes = operands.size() > 1 || step.divisor > 1 || step.by_factor || step.kind == StepKind::kCombine;
    return ElementByElement(operands, IsArithmetic(fold) && computes, [&](absl::Span<const Value> values) {
      const Value value = step.kind == StepKind::kCombine
                              ? symbols_.Combine(in, values, plan.coefficients_of(step), step.finite)
                          : step.by_factor ? symbols_.TimesFactor(values[0], in, plan.rank)
                                           : symbols_.Divide(symbols_.Fold(fold, in, values), in, step.divisor);
      return symbols_.Convert(value, in, to);
    });
  }

  std::vector<ValueRun> Encoded(absl::Span<const ValueRun> runs, const CodecChoice& codec, std::int64_t bytes,
                                Position at) {
    std::vector<Symbol::Term> elements;
    for (const ValueRun& run : runs) elements.push_back({run.value.symbol, run.value.index, run.count});
    return {{bytes, symbols_.Encoded(codec, std::move(elements), static_cast<std::int64_t>(at))}};
  }

  std::vector<ValueRun> Decoded(absl::Span<const ValueRun> runs, const CodecChoice& codec, std::int64_t count) {
    // The bytes may have travelled in several parts, which must be those of one message in order.
    std::int64_t at = 0;
    const SymbolId message = runs[0].value.symbol;
    for (const ValueRun& run : runs) {
      if (!(run.value == Value{message, at}))
        error_ = absl::StrCat("src holds ", symbols_.Describe(runs[0].value), " and ", symbols_.Describe(run.value),
                              ", which are not successive parts of one message");
      at += run.count;
    }
    if (!symbols_.IsMessageOf(message, codec, count)) {
      error_ = absl::StrCat("src must hold a message in which ", ToString(codec), " has encoded ", count, " elements");
    }
    if (!error_.empty()) return {};
    return {{count, symbols_.Decoded(message)}};
  }

  absl::Status CheckPromises() {
    if (absl::Status status = CheckStates(); !status.ok()) return status;
    for (std::size_t p = 0; p < plans_.size(); ++p) {
      const Plan& plan = plans_[p];
      for (const Promise& promise : PromisesTo(plans_, p)) {
        const std::vector<ValueRun> runs = At(static_cast<int>(p), promise.place).Read(promise.place, error_);
        const auto ends_with = [&](const auto&... what) {
          return absl::FailedPreconditionError(
              absl::StrCat("rank ", plan.rank, " ends with ", ToText(promise.place), ": ", what...));
        };
        if (!error_.empty()) return ends_with(error_);
        if (const auto broken = Broken(promise, plan, runs, symbols_, residuals_); broken.has_value()) {
          return ends_with(broken->reason, WrittenBy(runs, broken->element));
        }
        MarkUsed(runs);
      }
      const Ref state{.space = Space::kState, .dtype = DType::kU8, .bytes = plan.state_bytes};
      MarkUsed(At(static_cast<int>(p), state).Pieces());
    }
    const bool mixes = !plans_[0].mixing.empty();
    return !mixes && PromisesReplicas(plans_[0].spec.collective) ? CheckOutputs() : absl::OkStatus();
  }

  absl::Status CheckStates() {
    for (std::size_t p = 0; p < plans_.size(); ++p) {
      for (const StateRange& state : plans_[p].states) {
        if (state.range.bytes == 0) continue;
        const std::string wrong = state.kind == StateKind::kReplica ? ReplicaFault(state, p) : ResidualFault(state, p);
        if (wrong.empty()) continue;
        return absl::FailedPreconditionError(
            absl::StrCat("rank ", plans_[p].rank, " ends with the ", Name(state.kind), " ", state.name, ": ", wrong));
      }
    }
    return absl::OkStatus();
  }

  // Checks that all replicas of a rank's weights remain one value, that of the rank itself, which is its output but for
  // the cast to the type of the call.
  std::string ReplicaFault(const StateRange& replica, std::size_t p) {
    const std::vector<StateRange>& states = plans_[plan_of_rank_[replica.of]].states;
    const auto own = std::find_if(states.begin(), states.end(), [&](const StateRange& state) {
      return state.kind == StateKind::kReplica && state.of == replica.of && state.range.bytes == replica.range.bytes;
    });
    if (own == states.end()) return absl::StrCat("rank ", replica.of, " keeps no replica of its own weights");
    const std::vector<ValueRun> here = Joined(p, replica.range);
    if (replica.of == plans_[p].rank) {
      const Ref out = OutputOf(plans_[p].spec, plans_[p].rank, plans_[p].size);
      const std::vector<ValueRun> result = Joined(p, out);
      const std::vector<ValueRun> as_result = Converted(here, replica.range.dtype, out.dtype);
      for (std::size_t i = 0; i < std::max(result.size(), as_result.size()); ++i) {
        const bool both = i < std::min(result.size(), as_result.size());
        if (both && result[i].value == as_result[i].value && result[i].count == as_result[i].count) continue;
        return absl::StrCat(
            both ? symbols_.Describe(as_result[i].value) : absl::StrCat(replica.range.count(), " elements"),
            ", not the output, which has ", both ? symbols_.Describe(result[i].value) : absl::StrCat(out.count()));
      }
    }
    const std::vector<ValueRun> there = Joined(static_cast<std::size_t>(plan_of_rank_[replica.of]), own->range);
    for (std::size_t i = 0; i < std::min(here.size(), there.size()); ++i) {
      if (here[i].value == there[i].value && here[i].count == there[i].count) continue;
      return absl::StrCat(symbols_.Describe(here[i].value), "; rank ", replica.of, " itself has ",
                          symbols_.Describe(there[i].value));
    }
    return "";
  }

  // Checks that a residual becomes what was to be encoded, the old residual included, less what the peers decode of it.
  std::string ResidualFault(const StateRange& state, std::size_t p) {
    const Ref& range = state.range;
    std::int64_t done = 0;
    for (const ValueRun& run : Joined(p, range)) {
      const Value before = symbols_.State(plans_[p].rank, range.dtype, range.offset / SizeOf(range.dtype) + done);
      for (std::int64_t k = 0; k < run.count;) {
        const std::int64_t alike = ElementsOfResidual(symbols_, run.value + k, before + k);
        if (alike == 0) {
          return absl::StrCat(symbols_.Describe(run.value + k), ", not value + residual - decoded(value + residual)");
        }
        k += alike;
      }
      residuals_.Add(before, {run, state.first_element + done, state.divisor});
      done += run.count;
    }
    return "";
  }

  // The step that wrote element `element` of `runs`, as the end of a sentence; empty where no step wrote the element.
  std::string WrittenBy(absl::Span<const ValueRun> runs, std::int64_t element) const {
    const Position writer = Slice(runs, element, 1)[0].writer;
    return writer == Order::kNone ? "" : absl::StrCat(", written by ", order_.Describe(writer));
  }

  // The elements of a range at the end of the run; runs are joined whichever steps wrote them.
  std::vector<ValueRun> Joined(std::size_t p, const Ref& range) {
    std::vector<ValueRun> joined;
    for (ValueRun run : At(static_cast<int>(p), range).Read(range, error_)) {
      run.writer = Order::kNone;
      Append(joined, run);
    }
    return joined;
  }

  void MarkUsed(absl::Span<const ValueRun> runs) {
    for (const ValueRun& run : runs) {
      if (run.writer != Order::kNone) used_[run.writer] = true;
    }
  }

  // Checks that replicas are bit-equal: every rank must hold the result of one and the same computation.
  absl::Status CheckOutputs() {
    auto result = [&](std::size_t p) { return Joined(p, OutputOf(plans_[p].spec, plans_[p].rank, plans_[p].size)); };
    const std::vector<ValueRun> first = result(0);
    for (std::size_t p = 1; p < plans_.size(); ++p) {
      const std::vector<ValueRun> other = result(p);
      std::int64_t element = 0;
      for (std::size_t i = 0; i < std::min(first.size(), other.size()); ++i) {
        if (!(first[i].value == other[i].value) || first[i].count != other[i].count) {
          if (first[i].value == other[i].value) element += std::min(first[i].count, other[i].count);
          const std::vector<ValueRun> a = OutputElement(0, element);
          const std::vector<ValueRun> b = OutputElement(p, element);
          return absl::FailedPreconditionError(
              absl::StrCat("replicas differ: out element ", element, " of rank ", plans_[0].rank, " is ",
                           symbols_.Describe(a[0].value), ", of rank ", plans_[p].rank, " ",
                           symbols_.Describe(b[0].value), WrittenBy(a, 0), WrittenBy(b, 0)));
        }
        element += first[i].count;
      }
    }
    return absl::OkStatus();
  }

  std::vector<ValueRun> OutputElement(std::size_t p, std::int64_t element) {
    const Ref place = OutputOf(plans_[p].spec, plans_[p].rank, plans_[p].size).Elements(element, 1);
    return At(static_cast<int>(p), place).Read(place, error_);
  }

  // Checks that every step has an effect: a step whose results are all overwritten or unused is a mistake. The one
  // message of a send or recv may be empty.
  absl::Status CheckUse() const {
    if (IsPointToPoint(plans_[0].spec.collective)) return absl::OkStatus();
    for (Position at = 0; at < order_.size(); ++at) {
      if (used_[at] || order_.step(at).num_dsts == 0 || barrier()) continue;
      return absl::FailedPreconditionError(absl::StrCat(order_.Describe(at), ": nothing uses its result"));
    }
    return absl::OkStatus();
  }

  absl::Span<const Plan> plans_;
  const Order& order_;
  Symbols symbols_;
  Residuals residuals_;
  std::vector<int> plan_of_rank_;
  std::vector<std::array<Contents, 4>> memory_;
  std::vector<bool> used_;
  std::vector<std::vector<ValueRun>> messages_;
  absl::flat_hash_map<Position, std::vector<std::vector<ValueRun>>>
      native_inputs_;       // by number, then place in the group
  Position looked_at_ = 0;  // the step that an error is of
  std::string error_;
};

}  // namespace

absl::Status CheckValues(absl::Span<const Plan> plans, const Order& order, absl::FunctionRef<void(double)> done) {
  return Simulation(plans, order).Check(done);
}

}  // namespace tutti
