#include "engine/past_cache_choice.h"

#include <algorithm>
#include <bit>

#include "base/clock.h"

namespace tutti {
namespace {

using kernels::Stores;

// At first both ways are tried in turns, for as many copies as make both known although the first copies touch memory
// for the first time. The turns follow no period: a call may consist of two copies, or four, of which each is
// different.
constexpr std::uint64_t kTurns = 16;
bool IsOthersTurn(std::uint64_t copy) { return std::popcount(copy) % 2 == 1; }
// Later, of so many copies one is stored in the other way: an odd number, so that all copies of a call are tried.
constexpr std::uint64_t kBetweenTrials = 257;
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

void PastCacheChoice::Convert(DType dst_type, void* dst, DType src_type, const void* src, std::int64_t count) {
  const std::int64_t bytes = count * SizeOf(dst_type);
  if (bytes < kMinBytes) return kernels::Convert(dst_type, dst, src_type, src, count, Stores::kCached);
  const Stores stores = Next();
  const std::int64_t begin_ns = MonotonicNanos();
  kernels::Convert(dst_type, dst, src_type, src, count, stores);
  Took(bytes, MonotonicNanos() - begin_ns);
}

Stores PastCacheChoice::Next() {
  const std::uint64_t number = copies_++;
  const bool tries = number < kTurns ? IsOthersTurn(number) : number % kBetweenTrials == 0;
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
