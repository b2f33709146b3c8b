#include "comm/link_times.h"

#include <algorithm>
#include <limits>

namespace tutti {
namespace {

constexpr int kMaxTrips = 20;
constexpr int kFewestTrips = 3;                   // the first trips connect the ranks
constexpr std::int64_t kTripsNanos = 20'000'000;  // the trips of a long way are few
constexpr std::int64_t kFewestBytes = 64 << 10;
constexpr std::int64_t kLongNanos = 5'000'000;
constexpr int kMaxCounted = 3;
constexpr std::int64_t kCountedNanos = 20'000'000;  // further exchanges that count start within this time

}  // namespace

absl::StatusOr<LinkNanos> TimeLink(absl::FunctionRef<absl::StatusOr<std::int64_t>(std::int64_t bytes)> exchange) {
  constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
  LinkNanos nanos{.trip = kNever, .exchange = kNever, .bytes = kFewestBytes};
  std::int64_t spent = 0;
  for (int trip = 0; trip < kFewestTrips || (trip < kMaxTrips && spent < kTripsNanos); ++trip) {
    const absl::StatusOr<std::int64_t> took = exchange(0);
    if (!took.ok()) return took.status();
    spent += *took;
    nanos.trip = std::min(nanos.trip, *took);
  }
  // A connection that has just begun is slow on a long way, until several trips have gone by.
  const std::int64_t enough = std::max(kLongNanos, 2 * nanos.trip);
  spent = 0;
  for (int of_these_bytes = 0; of_these_bytes <= kMaxCounted && spent < kCountedNanos; ++of_these_bytes) {
    const absl::StatusOr<std::int64_t> took = exchange(nanos.bytes);
    if (!took.ok()) return took.status();
    const std::int64_t beyond = std::max<std::int64_t>(*took - nanos.trip, 1);
    if (beyond < enough && nanos.bytes < kMaxExchanged) {
      nanos.bytes *= 2;
      nanos.exchange = kNever;
      spent = 0;
      of_these_bytes = -1;
    } else if (of_these_bytes > 0) {
      // A shaper lets pass at once what it has saved up, and connections are made for the first long message: the first
      // exchange that takes long does not count, but the fastest of those after it.
      spent += *took;
      nanos.exchange = std::min(nanos.exchange, beyond);
    }
  }
  return nanos;
}

}  // namespace tutti
