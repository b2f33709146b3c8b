// Fold: any number of ranks becomes a power of two. Of n = p + e ranks (p the largest power of two), e are extras: each
// hands its data to a partner before the schedule proper and gets the result from it afterwards.
#ifndef ALGORITHMS_SCHEDULES_FOLD_H_
#define ALGORITHMS_SCHEDULES_FOLD_H_

#include <optional>

#include "tutti/dtype.h"

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
  // Of an extra.
  static Rank Partner(Rank extra) { return extra - 1; }
  std::optional<Rank> ExtraOf(Rank rank) const {
    if (rank < 2 * extras_ && rank % 2 == 0) return rank + 1;
    return std::nullopt;
  }
  // Of a participant, and back.
  int Participant(Rank rank) const { return rank < 2 * extras_ ? rank / 2 : rank - extras_; }
  Rank RankOf(int participant) const { return participant < extras_ ? 2 * participant : participant + extras_; }

 private:
  int participants_ = 1;
  int extras_ = 0;
};

}  // namespace tutti::schedules

#endif  // ALGORITHMS_SCHEDULES_FOLD_H_
