#include "engine/inquiries.h"

namespace tutti {
namespace {

// A rank that answers "nobody" has perhaps only begun to wait: it is asked again soon.
constexpr std::int64_t kPauseNanos = 100'000'000;
// Longer than the pause and the time in which a sleeping rank answers, also on a busy machine.
constexpr std::int64_t kStaleNanos = 500'000'000;
// A question is looked at all the time before the deadline of a call. An answer to one that nobody has looked at for so
// long is about an earlier call, and may have come at any time.
constexpr std::int64_t kForgottenNanos = 5'000'000'000;

}  // namespace

Inquiries::OfRank& Inquiries::Look(Rank rank, std::int64_t now_ns) {
  OfRank& of_rank = ranks_[static_cast<std::size_t>(rank)];
  if (!of_rank.open) return of_rank;
  const std::optional<Rank> answer = transport_.WaitsFor(rank);
  if (answer.has_value()) {
    const bool is_forgotten = now_ns - of_rank.silent_ns > kForgottenNanos;
    of_rank = {.answer = *answer, .answered_ns = is_forgotten ? of_rank.silent_ns : now_ns};
  } else {
    of_rank.silent_ns = now_ns;
  }
  return of_rank;
}

void Inquiries::Ask(Rank rank, std::int64_t now_ns) {
  OfRank& of_rank = Look(rank, now_ns);
  if (of_rank.open || (of_rank.answered_ns != 0 && now_ns - of_rank.answered_ns < kPauseNanos)) return;
  of_rank.open = true;
  of_rank.silent_ns = now_ns;
  transport_.AskWaitsFor(rank);
}

std::optional<Rank> Inquiries::AnswerOf(Rank rank, std::int64_t now_ns) {
  const OfRank& of_rank = Look(rank, now_ns);
  if (of_rank.answered_ns == 0 || now_ns - of_rank.answered_ns > kStaleNanos) return std::nullopt;
  return of_rank.answer;
}

}  // namespace tutti
