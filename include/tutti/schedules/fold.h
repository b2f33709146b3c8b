// Fold: any number of ranks becomes a power of two. Of n = p + e ranks (p the largest power of two up to n), e are
// extras: each hands its data to a partner before the schedule proper and gets the result from it afterwards.
#ifndef TUTTI_SCHEDULES_FOLD_H_
#define TUTTI_SCHEDULES_FOLD_H_

#include <cstdint>
#include <optional>

#include "tutti/plan_builder.h"
#include "tutti/schedules/partials.h"

namespace tutti::schedules {

// Ranks 0 … 2e-1 form pairs: the even one takes part, the odd one is its extra; all others take part alone. So the
// participants v = 0 … p-1 hold runs of ranks in rank order, and a combination "lower v first" is in rank order.
class Fold {
 public:
  explicit Fold(int n) {
    while (participants_ * 2 <= n) participants_ *= 2;
    extras_ = n - participants_;
  }

  int participants() const { return participants_; }
  bool IsExtra(Rank rank) const { return rank < 2 * extras_ && rank % 2 == 1; }
  // The participant that serves `extra`, and the extra that a participant serves, if it has one.
  static Rank Partner(Rank extra) { return extra - 1; }
  std::optional<Rank> ExtraOf(Rank rank) const {
    if (rank < 2 * extras_ && rank % 2 == 0) return rank + 1;
    return std::nullopt;
  }
  // Maps the rank of a participant to its number v, and back; RankOf(p) is n.
  int Participant(Rank rank) const { return rank < 2 * extras_ ? rank / 2 : rank - extras_; }
  Rank RankOf(int participant) const { return participant < extras_ ? 2 * participant : participant + extras_; }

 private:
  int participants_ = 1;
  int extras_ = 0;
};

// All that an extra does: the extra hands its whole input to its partner, and gets its result.
inline void HandToPartner(PlanBuilder& b) {
  b.Send(Fold::Partner(b.rank()), InputAsPartial(b));
  b.Recv(Fold::Partner(b.rank()), b.out());
}

// The operands from which a participant's all-reduce starts. AllReduceTakeIn returns them; AllReduceHandBack is the
// last step.
struct Participation {
  Ref mine;     // the partial of its run of ranks: never written if it is the input
  Ref partial;  // where later partials go: the output, or scratch where partials are wider
};

// Combines the extra's partial, if this participant has an extra, with this participant's. `arrival(count)` returns
// scratch to receive the extra's partial in.
template <typename Arrival>
Participation AllReduceTakeIn(PlanBuilder& b, const Fold& fold, Arrival arrival) {
  const Ref own = InputAsPartial(b);
  const Ref partial = PartialsAreWider(b) ? own : b.out();
  const auto extra = fold.ExtraOf(b.rank());
  if (!extra) return {own, partial};
  const Ref theirs = arrival(own.count());
  b.Recv(*extra, theirs);
  b.Reduce(partial, {own, theirs}, PartialOp(b.spec()));
  return {partial, partial};
}

// The last step of a participant: sends the result to its extra, if it has one.
inline void AllReduceHandBack(PlanBuilder& b, const Fold& fold) {
  if (const auto extra = fold.ExtraOf(b.rank())) b.Send(*extra, b.out());
}

}  // namespace tutti::schedules

#endif  // TUTTI_SCHEDULES_FOLD_H_
