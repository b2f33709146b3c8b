#include "engine/past_cache_choice.h"

#include <algorithm>

namespace tutti {
namespace {

using kernels::Stores;

// At first the two ways take turns, for as many copies as make both known although the first copies touch memory for
// the first time.
constexpr std::int64_t kTurns = 16;
// Later, of so many copies one is stored in the other way.
constexpr std::int64_t kBetweenTrials = 256;
// How many times as long cached stores must take. Peers take up to three times as long to read from memory what they
// would have found in a cache.
constexpr double kWorthwhile = 5;

Stores Other(Stores stores) { return stores == Stores::kCached ? Stores::kStreaming : Stores::kCached; }

}  // namespace

double PastCacheChoice::Way::median() const {
  std::array<double, 5> sorted = nanos_per_byte;
  std::sort(sorted.begin(), sorted.end());
  return sorted[sorted.size() / 2];
}

Stores PastCacheChoice::Next() {
  const std::int64_t number = copies_++;
  const bool tries = number < kTurns ? number % 2 == 1 : number % kBetweenTrials == 0;
  chosen_ = tries ? Other(preferred_) : preferred_;
  return chosen_;
}

void PastCacheChoice::Took(std::int64_t bytes, std::int64_t nanos) {
  Way& used = way(chosen_);
  used.nanos_per_byte[used.measured++ % used.nanos_per_byte.size()] =
      static_cast<double>(nanos) / static_cast<double>(bytes);
  if (copies_ < kTurns || !cached_.is_known() || !streaming_.is_known()) return;
  preferred_ = cached_.median() > kWorthwhile * streaming_.median() ? Stores::kStreaming : Stores::kCached;
}

}  // namespace tutti
