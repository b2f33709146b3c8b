#ifndef TUTTI_PLAN_LIMITS_H_
#define TUTTI_PLAN_LIMITS_H_

#include <cstdint>

namespace tutti {

// The most bytes that an input or output of one rank, or the parameters of a model, may hold: all that a process can
// address. Sums of a few sizes below this limit do not overflow.
inline constexpr std::int64_t kMaxBytes = std::int64_t{1} << 47;

// The shares of a mix, which users may give with six digits, sum to 1 within this number.
inline constexpr double kRoundingOfShares = 1e-6;

// The most signals that a rank may make in one run of a plan: a signal and its number share a word.
inline constexpr std::uint32_t kMaxSignals = 65'534;

// The most messages that a rank may send to one other in one run of a plan: the numbers of messages under way differ.
inline constexpr std::uint32_t kMaxMessagesToAPeer = (1U << 18) - 1;

}  // namespace tutti

#endif  // TUTTI_PLAN_LIMITS_H_
