#include "plan/promise.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "plan/limits.h"
#include "plan/spaces.h"

namespace tutti {
namespace {

using Kind = Symbol::Kind;

Promise Block(const Ref& out, std::int64_t at, std::int64_t count, Rank source, std::int64_t first) {
  return {.place = out.Elements(at, count), .source = source, .first = first};
}

Value TermOf(const Symbols& symbols, const Value& value, std::size_t i) {
  const Symbol::Term& term = symbols[value.symbol].terms[i];
  return {term.symbol, term.index + value.index};
}

// The element that a message holds where `decoded` is decoded, with those after it that lie in one run; none beyond the
// end of the message.
ValueRun EncodedElements(const Symbols& symbols, const Value& decoded) {
  std::int64_t at = decoded.index;
  for (const Symbol::Term& part : symbols[symbols[decoded.symbol].terms[0].symbol].terms) {
    if (at < part.count) return {part.count - at, {part.symbol, part.index + at}};
    at -= part.count;
  }
  return {};
}

constexpr char kMisplacedResidual[] =
    "; a residual (state) may only be the last term of the message whose loss it becomes";

// Whether `a` is `b`, but for the rounding of sums whose terms may cancel.
bool Near(double a, double b) { return std::abs(a - b) <= 1e-9 * std::abs(b) + 1e-12; }

// Traces an element back to the inputs from which the element was made.
class Tracer {
 public:
  struct Leaf {
    Rank rank;
    std::int64_t index;
    double coefficient;
    Rank factor_of = kSelf;  // the rank by whose factor the input was multiplied; kSelf: by none
    bool replica = false;    // a replica stands for the input
  };

  Tracer(const Symbols& symbols, const Residuals& residuals, const Plan& plan, bool combined)
      : symbols_(symbols),
        residuals_(residuals),
        spec_(plan.spec),
        combined_(combined),
        mixes_(!plan.mixing.empty()),
        most_(combined ? static_cast<std::size_t>(plan.size) : 1),
        nodes_(plan.mixing_nodes),
        sums_(plan.spec.op == ReduceOp::kSum || plan.spec.op == ReduceOp::kAvg ||
              plan.spec.op == ReduceOp::kPremulSum) {}

  // Traces `value` to its inputs; false when something other than the promised computation stands between. The replica
  // of a rank's weights counts as the input of that rank, or as the average of its node's inputs. A residual counts for
  // nothing where it is the last term of the message whose loss it becomes, and stands nowhere else. A value may be
  // made of earlier ones along more paths than there are atoms: only a mix may hold an input several times, and there
  // every value is traced once.
  bool Trace(const Value& value, double coefficient = 1, bool outermost = true) {
    if (!mixes_) return leaves.size() <= most_ && TraceTerms(value, coefficient, outermost);
    if (outermost || symbols_[value.symbol].terms.size() == 1) return TraceTerms(value, coefficient, outermost);
    auto known = traced_.find({value.symbol, value.index});
    if (known == traced_.end()) {
      std::vector<Leaf> others = std::exchange(leaves, {});
      if (!TraceTerms(value, 1, false)) return false;
      MergeLeaves();
      known = traced_.emplace(std::pair(value.symbol, value.index), std::exchange(leaves, std::move(others))).first;
    }
    for (Leaf leaf : known->second) {
      leaf.coefficient *= coefficient;
      leaves.push_back(leaf);
    }
    return true;
  }

  std::vector<Leaf> leaves;
  // The number of elements, from the traced one on, that are made in the same way.
  std::int64_t constant = std::numeric_limits<std::int64_t>::max();
  std::string fault;  // what is wrong, where the value does not show it

 private:
  bool TraceTerms(const Value& value, double coefficient, bool outermost) {
    const Symbol& symbol = symbols_[value.symbol];
    auto term = [&](std::size_t i) { return TermOf(symbols_, value, i); };
    switch (symbol.kind) {
      case Kind::kReplica:
        if (mixes_) AddReplica(symbol.rank, value.index, coefficient);
        return mixes_;
      case Kind::kInput:
        leaves.push_back({symbol.rank, value.index, coefficient});
        return true;
      case Kind::kState:
        fault = kMisplacedResidual;
        return false;
      case Kind::kCombine:
        if (!combined_ || !sums_ || symbol.finite) return false;
        for (std::size_t i = 0; i < symbol.terms.size(); ++i) {
          if (!Trace(term(i), coefficient * symbol.coefficients[i].value(), false)) return false;
        }
        return true;
      case Kind::kFold:
        return TraceFold(value, symbol.terms.size(), coefficient);
      // The order of a native sum and the number of its roundings are the transport's: the promise is the sum.
      case Kind::kNative: {
        const bool divides = symbol.divisor != 1;
        const bool may_divide = MayDivide(coefficient, outermost);
        if (!combined_ || symbol.op != (sums_ ? ReduceOp::kSum : spec_.op) || (divides && !may_divide)) return false;
        for (std::size_t i = 0; i < symbol.terms.size(); ++i) {
          if (!Trace(term(i), coefficient / symbol.divisor, false)) return false;
        }
        return true;
      }
      case Kind::kDivide:
        if (!combined_ || !MayDivide(coefficient, outermost)) return false;
        return Trace(term(0), coefficient / symbol.divisor, false);
      case Kind::kScaled: {
        if (!combined_ || spec_.op != ReduceOp::kPremulSum) return false;
        const std::size_t first = leaves.size();
        if (!Trace(term(0), coefficient, false)) return false;
        for (std::size_t i = first; i < leaves.size(); ++i) {
          if (leaves[i].factor_of != kSelf) return false;  // the input was multiplied twice
          leaves[i].factor_of = symbol.rank;
        }
        return true;
      }
      case Kind::kRound:
        // Floating numbers may be rounded to floating numbers on their way into a combined result; one rank's input
        // arrives as it was.
        if (!combined_ || !IsFloating(spec_.dtype) || !IsFloating(symbol.dtype)) return false;
        return Trace(term(0), coefficient, outermost);
      case Kind::kDecoded:
        return TraceDecoded(value, coefficient, outermost);
      default:
        return false;
    }
  }

  // Whether a value with this coefficient in the result may be the quotient of a sum. Integers truncate, so that only
  // the finished sum may be divided; of floating numbers, what is divided already may not be divided again.
  bool MayDivide(double coefficient, bool outermost) const {
    if (spec_.op != ReduceOp::kAvg) return false;
    return IsFloating(spec_.dtype) ? mixes_ || coefficient == 1 : outermost;
  }

  // Traces the first `terms` terms of a fold.
  bool TraceFold(const Value& fold, std::size_t terms, double coefficient) {
    if (!combined_ || symbols_[fold.symbol].op != (sums_ ? ReduceOp::kSum : spec_.op)) return false;
    for (std::size_t i = 0; i < terms; ++i) {
      if (!Trace(TermOf(symbols_, fold, i), coefficient, false)) return false;
    }
    return true;
  }

  bool TraceDecoded(const Value& decoded, double coefficient, bool outermost) {
    const ValueRun encoded = EncodedElements(symbols_, decoded);
    if (!combined_ || encoded.count == 0) return false;  // what a codec loses would be missing in one rank's input
    constant = std::min(constant, encoded.count);
    const Symbol& sum = symbols_[encoded.value.symbol];
    if (sum.kind != Kind::kFold || symbols_[sum.terms.back().symbol].kind != Kind::kState) {
      return Trace(encoded.value, coefficient, outermost);
    }
    const std::size_t last = sum.terms.size() - 1;
    const Residuals::Run left = residuals_.Find(TermOf(symbols_, encoded.value, last));
    if (left.after.count == 0 || !(TermOf(symbols_, left.after.value, 1) == decoded)) {
      fault = kMisplacedResidual;
      return false;
    }
    constant = std::min(constant, left.after.count);
    const std::size_t first = leaves.size();
    if (!TraceFold(encoded.value, last, coefficient)) return false;
    const bool belongs = std::all_of(leaves.begin() + static_cast<std::ptrdiff_t>(first), leaves.end(),
                                     [&](const Leaf& leaf) { return leaf.index == left.element; });
    // In a mix a message may count several times, each time with another coefficient.
    const bool divides = mixes_ || Near(coefficient, 1.0 / left.divisor);
    if (belongs && divides) return true;
    fault = belongs ? absl::StrCat("; the divisor of a residual (state) is ", left.divisor, ", must be ",
                                   1 / coefficient, ": the result lacks its values times ", coefficient)
                    : absl::StrCat("; a residual (state) is of element ", left.element,
                                   " of the bucket (StateRange::first_element), but its message of other elements");
    return false;
  }

  void AddReplica(Rank of, std::int64_t index, double coefficient) {
    if (nodes_.empty()) return leaves.push_back({of, index, coefficient, kSelf, /*replica=*/true});
    const auto ranks = static_cast<double>(std::count(nodes_.begin(), nodes_.end(), nodes_[of]));
    for (Rank rank = 0; rank < static_cast<Rank>(nodes_.size()); ++rank) {
      if (nodes_[rank] == nodes_[of]) leaves.push_back({rank, index, coefficient / ranks, kSelf, /*replica=*/true});
    }
  }

  // Adds up the leaves that are one input.
  void MergeLeaves() {
    const auto input_of = [](const Leaf& leaf) {
      return std::tuple(leaf.rank, leaf.index, leaf.factor_of, leaf.replica);
    };
    std::sort(leaves.begin(), leaves.end(), [&](const Leaf& a, const Leaf& b) { return input_of(a) < input_of(b); });
    std::vector<Leaf> merged;
    for (const Leaf& leaf : leaves) {
      if (merged.empty() || input_of(merged.back()) != input_of(leaf)) {
        merged.push_back(leaf);
      } else {
        merged.back().coefficient += leaf.coefficient;
      }
    }
    leaves = std::move(merged);
  }

  const Symbols& symbols_;
  const Residuals& residuals_;
  const CollectiveSpec& spec_;
  bool combined_;  // the promise combines several ranks' inputs
  bool mixes_;
  std::size_t most_;  // the leaves of a value without a mix
  const std::vector<int>& nodes_;
  bool sums_;
  absl::flat_hash_map<std::pair<SymbolId, std::int64_t>, std::vector<Leaf>> traced_;  // of a mix, with coefficient 1
};

// Whether the share of every rank in `leaves` is that of `weights`, and that of all replicas together 0: replicas are
// the weights of earlier steps, and what the training has changed since then is in the inputs alone.
bool Mixes(const std::vector<double>& weights, std::int64_t index, absl::Span<const Tracer::Leaf> leaves,
           std::string& fault) {
  std::vector<double> parts(weights.size(), 0);
  double of_replicas = 0;
  for (const Tracer::Leaf& leaf : leaves) {
    if (leaf.index != index) return false;
    parts[leaf.rank] += leaf.coefficient;
    if (leaf.replica) of_replicas += leaf.coefficient;
  }
  if (!std::equal(parts.begin(), parts.end(), weights.begin(), Near)) return false;
  // Inputs and replicas together have the sum of the weights, which is 1 within the same bounds (CheckForm).
  if (std::abs(of_replicas) <= kRoundingOfShares) return true;
  fault = absl::StrCat("; the shares of replicas sum to ", of_replicas,
                       ", must sum to 0, for else changes of the weights since the last run are lost");
  return false;
}

bool Keeps(const Promise& promise, const Plan& plan, std::int64_t index, std::vector<Tracer::Leaf>& leaves,
           std::string& fault) {
  if (promise.source != Promise::kAll) {
    return leaves.size() == 1 && leaves[0].rank == promise.source && leaves[0].index == index;
  }
  if (!plan.mixing.empty()) return Mixes(plan.mixing, index, leaves, fault);
  if (leaves.size() != static_cast<std::size_t>(plan.size)) return false;
  std::sort(leaves.begin(), leaves.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
  const double coefficient = plan.spec.op == ReduceOp::kAvg ? 1.0 / plan.size : 1.0;
  for (Rank rank = 0; rank < plan.size; ++rank) {
    const Tracer::Leaf& leaf = leaves[rank];
    if (leaf.rank != rank || leaf.index != index || !Near(leaf.coefficient, coefficient)) return false;
    if (leaf.factor_of != (plan.spec.op == ReduceOp::kPremulSum ? rank : kSelf)) return false;
  }
  return true;
}

}  // namespace

void Residuals::Add(const Value& before, const Run& run) { runs_[before.symbol][before.index] = run; }

Residuals::Run Residuals::Find(const Value& before) const {
  const auto runs = runs_.find(before.symbol);
  if (runs == runs_.end()) return {};
  const auto next = runs->second.upper_bound(before.index);
  if (next == runs->second.begin()) return {};
  const auto& [first, run] = *std::prev(next);
  const std::int64_t skipped = before.index - first;
  if (skipped >= run.after.count) return {};
  return {{run.after.count - skipped, run.after.value + skipped}, run.element + skipped, run.divisor};
}

bool PromisesReplicas(Collective collective) {
  return collective == Collective::kAllReduce || collective == Collective::kAllGather ||
         collective == Collective::kBroadcast;
}

std::vector<Promise> PromisesTo(absl::Span<const Plan> plans, std::size_t index) {
  const Plan& plan = plans[index];
  const CollectiveSpec& spec = plan.spec;
  const Rank rank = plan.rank;
  const Ref out = OutputOf(spec, rank, plan.size);
  std::vector<Promise> promises;
  switch (spec.collective) {
    case Collective::kAllReduce:
    case Collective::kReduce:
      promises.push_back(Block(out, 0, out.count(), Promise::kAll, 0));
      break;
    case Collective::kReduceScatter:
      promises.push_back(Block(out, 0, spec.count, Promise::kAll, rank * spec.count));
      break;
    case Collective::kBroadcast:
    case Collective::kRecv:
      promises.push_back(Block(out, 0, spec.count, spec.root, 0));
      break;
    case Collective::kScatter:
      promises.push_back(Block(out, 0, spec.count, spec.root, rank * spec.count));
      break;
    case Collective::kAllGather:
    case Collective::kGather:
    case Collective::kAllToAll: {
      const std::int64_t first = spec.collective == Collective::kAllToAll ? rank * spec.count : 0;
      for (Rank q = 0; q < plan.size && out.bytes > 0; ++q) {
        promises.push_back(Block(out, q * spec.count, spec.count, q, first));
      }
      break;
    }
    case Collective::kAllToAllV: {
      std::int64_t at = 0;
      for (Rank q = 0; q < plan.size; ++q) {
        const std::vector<std::int64_t>& sent = plans[q].spec.send_counts;
        const std::int64_t first = std::accumulate(sent.begin(), sent.begin() + rank, std::int64_t{0});
        promises.push_back(Block(out, at, spec.recv_counts[q], q, first));
        at += spec.recv_counts[q];
      }
      break;
    }
    case Collective::kBarrier:
    case Collective::kSend:
      break;
  }
  if (spec.in_place) {
    const Ref in = InputOf(spec, rank, plan.size);
    const std::int64_t width = SizeOf(spec.dtype);
    const std::int64_t before = std::clamp<std::int64_t>(out.offset - in.offset, 0, in.bytes) / width;
    const std::int64_t after = std::clamp<std::int64_t>(out.offset + out.bytes - in.offset, 0, in.bytes) / width;
    promises.push_back(Block(in, 0, before, rank, 0));
    promises.push_back(Block(in, after, in.count() - after, rank, after));
  }
  std::erase_if(promises, [](const Promise& promise) { return promise.place.bytes == 0; });
  return promises;
}

std::optional<BrokenPromise> Broken(const Promise& promise, const Plan& plan, absl::Span<const ValueRun> runs,
                                    const Symbols& symbols, const Residuals& residuals) {
  std::int64_t index = promise.first;
  for (const ValueRun& run : runs) {
    for (std::int64_t k = 0; k < run.count;) {
      Tracer tracer(symbols, residuals, plan, promise.source == Promise::kAll);
      const bool traced = tracer.Trace(run.value + k);
      if (!traced || !Keeps(promise, plan, index + k, tracer.leaves, tracer.fault)) {
        const std::string expected =
            promise.source == Promise::kAll && !plan.mixing.empty()
                ? absl::StrCat("element ", index + k, " of all ranks times the weights ",
                               absl::StrJoin(plan.mixing, ", "))
            : promise.source == Promise::kAll
                ? absl::StrCat(Name(plan.spec.op), " of element ", index + k, " of all ", plan.size, " ranks")
                : absl::StrCat("in@", promise.source, "[", index + k, "]");
        const std::int64_t element = index + k - promise.first;
        return BrokenPromise{element, absl::StrCat("element ", element, " of ", expected, " is expected, found ",
                                                   symbols.Describe(run.value + k), tracer.fault)};
      }
      k += std::min(tracer.constant, run.count - k);
    }
    index += run.count;
  }
  return std::nullopt;
}

std::int64_t ElementsOfResidual(const Symbols& symbols, const Value& after, const Value& before) {
  const Symbol& difference = symbols[after.symbol];
  const std::vector<Coefficient> minus = {{1, 1}, {-1, 1}};
  if (difference.kind != Kind::kCombine || !difference.finite || difference.coefficients != minus) return 0;
  const Value value = TermOf(symbols, after, 0);
  const Value decoded = TermOf(symbols, after, 1);
  const Symbol& sum = symbols[value.symbol];
  if (symbols[decoded.symbol].kind != Kind::kDecoded || sum.kind != Kind::kFold || sum.op != ReduceOp::kSum) return 0;
  const std::size_t last = sum.terms.size() - 1;
  for (std::size_t i = 0; i <= last; ++i) {
    if ((TermOf(symbols, value, i) == before) != (i == last)) return 0;
  }
  const ValueRun encoded = EncodedElements(symbols, decoded);
  return encoded.value == value ? encoded.count : 0;
}

}  // namespace tutti
