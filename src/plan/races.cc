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

// For each step, the plans that began before the step (or end after the step), as one bit per plan.
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
      : plans_(plans), order_(order), began_(plans.size(), order.size()), ends_(plans.size(), order.size()) {
    plan_of_rank_.assign(plans[0].size, -1);
    for (std::size_t p = 0; p < plans.size(); ++p) plan_of_rank_[plans[p].rank] = static_cast<int>(p);
    for (Position at = 0; at < order.size(); ++at) {
      began_.Add(at, order.plan_at(at));
      for (Position earlier : order.before(at)) began_.Merge(at, earlier);
      if (order.step(at).kind != StepKind::kNative) continue;
      for (Position giver : order.givers(at)) began_.Add(at, order.plan_at(giver));
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

  // Checks that no step touches a peer's buffers after the run of that peer, whose caller may then reuse them.
  absl::Status CheckPeers() const {
    for (Position at = 0; at < order_.size(); ++at) {
      const Step& step = order_.step(at);
      for (std::size_t i = 0; i < step.num_dsts + step.num_srcs; ++i) {
        const Ref& ref = order_.plan(at).refs[step.first_ref + i];
        if (ref.owner == kSelf) continue;
        const bool lent = ref.space == Space::kScratch && i >= step.num_dsts;
        const int owner = plan_of_rank_[ref.owner];
        const bool begun = began_.Has(at, owner);
        if (begun && (lent || ends_.Has(at, owner))) continue;
        const std::string missing =
            begun ? absl::StrCat("rank ", ref.owner, " wait for the step before the run of rank ", ref.owner, " ends")
                  : absl::StrCat("the step wait until rank ", ref.owner, " has begun");
        return absl::FailedPreconditionError(
            absl::StrCat("race: ", order_.Describe(at), " touches ", ToText(ref), ", but nothing makes ", missing));
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
    for (std::size_t p = 0; p < plans_.size(); ++p) {
      for (std::size_t q = 0; q < plans_.size(); ++q) {
        bool met = p == q;
        for (StepId s = 0; !met && s < plans_[p].steps.size(); ++s) {
          met = began_.Has(order_.at(static_cast<int>(p), s), static_cast<int>(q));
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
  Reach began_;
  Reach ends_;
};

}  // namespace

absl::Status CheckRaces(absl::Span<const Plan> plans, const Order& order, absl::FunctionRef<void(double)> done) {
  return Races(plans, order).Check(done);
}

}  // namespace tutti
