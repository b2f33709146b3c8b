#include "plan/races.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tutti/print.h"

namespace tutti {
namespace {

struct Access {
  Position at;
  std::int64_t begin, end;
  bool write;
};

// Accesses to one memory, in topological order. If every access follows the latest write before it, and every write the
// reads since, then all conflicting accesses are ordered, because order is transitive.
class Memory {
 public:
  void Add(Position at, const Ref& ref, bool write) {
    accesses_.push_back({at, ref.offset, ref.offset + ref.bytes, write});
    cuts_.push_back(ref.offset);
    cuts_.push_back(ref.offset + ref.bytes);
  }

  // Appends the pairs of accesses that must be ordered.
  void Conflicts(std::vector<Order::Pair>& pairs) {
    std::sort(cuts_.begin(), cuts_.end());
    cuts_.erase(std::unique(cuts_.begin(), cuts_.end()), cuts_.end());
    struct Cell {
      Position writer = Order::kNone;
      std::vector<Position> readers;
    };
    std::vector<Cell> cells(cuts_.size());
    for (const Access& access : accesses_) {
      auto cell = static_cast<std::size_t>(std::lower_bound(cuts_.begin(), cuts_.end(), access.begin) - cuts_.begin());
      for (; cuts_[cell] < access.end; ++cell) {
        Cell& c = cells[cell];
        auto follow = [&](Position earlier) {
          if (earlier == access.at || earlier == Order::kNone) return;
          if (pairs.empty() || pairs.back() != Order::Pair{earlier, access.at}) pairs.emplace_back(earlier, access.at);
        };
        follow(c.writer);
        if (!access.write) {
          c.readers.push_back(access.at);
          continue;
        }
        for (Position reader : c.readers) follow(reader);
        c.readers.clear();
        c.writer = access.at;
      }
    }
  }

 private:
  std::vector<Access> accesses_;
  std::vector<std::int64_t> cuts_;
};

// For each step, a set of plans (that its rank has met before the step, that end after the step), one bit per plan.
class Reach {
 public:
  Reach(std::size_t plans, std::size_t steps) : words_((plans + 63) / 64), bits_(words_ * steps) {}
  void Add(Position at, int plan) { bits_[at * words_ + plan / 64] |= std::uint64_t{1} << (plan % 64); }
  void Merge(Position into, Position from) {
    for (std::size_t w = 0; w < words_; ++w) bits_[into * words_ + w] |= bits_[from * words_ + w];
  }
  bool Has(Position at, int plan) const { return bits_[at * words_ + plan / 64] >> (plan % 64) & 1; }

 private:
  std::size_t words_;
  std::vector<std::uint64_t> bits_;
};

class Races {
 public:
  Races(absl::Span<const Plan> plans, const Order& order)
      : plans_(plans), order_(order), met_(plans.size(), order.size()), ends_(plans.size(), order.size()) {
    plan_of_rank_.assign(plans[0].size, -1);
    for (std::size_t p = 0; p < plans.size(); ++p) plan_of_rank_[plans[p].rank] = static_cast<int>(p);
    for (Position at = 0; at < order.size(); ++at) {
      if (order.step(at).kind == StepKind::kWait) met_.Add(at, order.plan_at(order.source(at)));
      for (Position earlier : order.before(at)) {
        if (order.plan_at(earlier) == order.plan_at(at)) met_.Merge(at, earlier);
      }
    }
    for (Position at = order.size(); at-- > 0;) {
      ends_.Add(at, order.plan_at(at));
      for (Position earlier : order.before(at)) ends_.Merge(earlier, at);
    }
  }

  absl::Status Check(absl::FunctionRef<void(double)> done) const {
    done(0);
    if (absl::Status status = CheckPeers(); !status.ok()) return status;
    if (absl::Status status = CheckSteady(StepKind::kSignal); !status.ok()) return status;
    if (absl::Status status = CheckSteady(StepKind::kNative); !status.ok()) return status;
    if (absl::Status status = CheckBarrier(); !status.ok()) return status;
    std::vector<Memory> memories(plans_.size() * kSpaces);
    auto memory = [&](Position at, const Ref& ref) -> Memory& {
      const int plan = ref.owner == kSelf ? order_.plan_at(at) : plan_of_rank_[ref.owner];
      return memories[plan * kSpaces + static_cast<std::size_t>(ref.space)];
    };
    for (Position at = 0; at < order_.size(); ++at) {
      for (const Ref& src : order_.plan(at).srcs(order_.step(at))) memory(at, src).Add(at, src, false);
      for (const Ref& dst : order_.plan(at).dsts(order_.step(at))) memory(at, dst).Add(at, dst, true);
    }
    std::vector<Order::Pair> pairs;
    for (Memory& m : memories) m.Conflicts(pairs);
    if (const std::optional<Order::Pair> race = order_.FirstUnordered(std::move(pairs), done)) {
      return absl::FailedPreconditionError(absl::StrCat("race: ", order_.Describe(race->first), " and ",
                                                        order_.Describe(race->second),
                                                        " touch the same bytes and nothing orders them"));
    }
    return absl::OkStatus();
  }

 private:
  static constexpr std::size_t kSpaces = 4;

  // Checks that every step that touches a peer's memory follows a Wait of its own rank for that peer, in which the rank
  // learns where the memory lies, and that the peer, whose caller may reuse its buffers after the run, waits for the
  // step.
  absl::Status CheckPeers() const {
    for (Position at = 0; at < order_.size(); ++at) {
      const Step& step = order_.step(at);
      for (std::size_t i = 0; i < step.num_dsts + step.num_srcs; ++i) {
        const Ref& ref = order_.plan(at).refs[step.first_ref + i];
        if (ref.owner == kSelf) continue;
        const bool lent = ref.space == Space::kScratch && i >= step.num_dsts;
        const int owner = plan_of_rank_[ref.owner];
        const bool met = met_.Has(at, owner);
        if (met && (lent || ends_.Has(at, owner))) continue;
        const std::string missing =
            met ? absl::StrCat("nothing makes rank ", ref.owner, " wait for the step before the run of rank ",
                               ref.owner, " ends")
                : absl::StrCat("depends on no wait of rank ", order_.plan(at).rank, " for rank ", ref.owner,
                               ", in which rank ", order_.plan(at).rank, " learns where that memory lies");
        return absl::FailedPreconditionError(
            absl::StrCat("race: ", order_.Describe(at), " touches ", ToText(ref), ", but ", missing));
      }
    }
    return absl::OkStatus();
  }

  // Checks that no step of `kind` can overtake an earlier one of its rank: a signal would satisfy a Wait too early, and
  // a native step would meet those of other ranks in another order than the plans say.
  absl::Status CheckSteady(StepKind kind) const {
    std::vector<Order::Pair> pairs;
    for (std::size_t p = 0; p < plans_.size(); ++p) {
      Position last = Order::kNone;
      for (StepId s = 0; s < plans_[p].steps.size(); ++s) {
        if (plans_[p].steps[s].kind != kind) continue;
        const Position at = order_.at(static_cast<int>(p), s);
        if (last != Order::kNone && at < last) return Overtakes(at, last);
        if (last != Order::kNone) pairs.emplace_back(last, at);
        last = at;
      }
    }
    const std::optional<Order::Pair> wrong = order_.FirstUnordered(std::move(pairs));
    return wrong ? Overtakes(wrong->second, wrong->first) : absl::OkStatus();
  }

  absl::Status Overtakes(Position later, Position earlier) const {
    return absl::FailedPreconditionError(
        absl::StrCat("race: ", order_.Describe(later), " may overtake ", order_.Describe(earlier), ", but the ",
                     Name(order_.step(later).kind), " steps of a rank must keep their order"));
  }

  // Checks that no rank leaves a barrier before every rank has entered it.
  absl::Status CheckBarrier() const {
    if (plans_[0].spec.collective != Collective::kBarrier) return absl::OkStatus();
    Reach began(plans_.size(), order_.size());  // the plans that began before each step
    for (Position at = 0; at < order_.size(); ++at) {
      began.Add(at, order_.plan_at(at));
      for (Position earlier : order_.before(at)) began.Merge(at, earlier);
      if (order_.step(at).kind != StepKind::kNative) continue;
      for (Position giver : order_.givers(at)) began.Add(at, order_.plan_at(giver));
    }
    for (std::size_t p = 0; p < plans_.size(); ++p) {
      for (std::size_t q = 0; q < plans_.size(); ++q) {
        bool met = p == q;
        for (StepId s = 0; !met && s < plans_[p].steps.size(); ++s) {
          met = began.Has(order_.at(static_cast<int>(p), s), static_cast<int>(q));
        }
        if (met) continue;
        return absl::FailedPreconditionError(
            absl::StrCat("barrier: rank ", plans_[p].rank, " may end before rank ", plans_[q].rank, " began"));
      }
    }
    return absl::OkStatus();
  }

  absl::Span<const Plan> plans_;
  const Order& order_;
  std::vector<int> plan_of_rank_;
  Reach met_;
  Reach ends_;
};

}  // namespace

absl::Status CheckRaces(absl::Span<const Plan> plans, const Order& order, absl::FunctionRef<void(double)> done) {
  return Races(plans, order).Check(done);
}

}  // namespace tutti
