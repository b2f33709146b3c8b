// A team: the threads that encode or decode one block together. Functions that work on a block are templates over the
// team, the same for a team of one thread on the host as for a warp or a thread block of a GPU (cuda_team.h).
#ifndef TUTTI_KERNELS_TEAM_H_
#define TUTTI_KERNELS_TEAM_H_

#include <cstdint>

#include "kernels/host_device.h"
#include "kernels/octet.h"

namespace tutti::kernels {

// All threads of a team call these functions together. What a thread wrote before Sync, all threads read after it.
struct OneThread {
  static constexpr int rank() { return 0; }
  static constexpr int size() { return 1; }
  TUTTI_HOST_DEVICE void Sync() const {}
  TUTTI_HOST_DEVICE bool All(bool value) const { return value; }
  TUTTI_HOST_DEVICE bool Any(bool value) const { return value; }
  // The values of all threads, put together by `value.Add(other)`.
  template <class T>
  TUTTI_HOST_DEVICE T Combine(T value) const {
    return value;
  }
  // The sum of the values of the threads before this one; `total` gets that of all.
  TUTTI_HOST_DEVICE std::uint64_t SumBefore(std::uint64_t value, std::uint64_t& total) const {
    total = value;
    return 0;
  }
  // Adds 1 to a counter that the team shares.
  TUTTI_HOST_DEVICE void Increment(std::uint64_t& counter) const { ++counter; }
};

// Calls visit(begin, n) for each octet [begin, begin + n) of `count` elements that is this thread's. The loop stays a
// loop on a GPU: there, many threads in flight hide how long memory takes, and long code is slower than what it saves.
template <class Team, class Visit>
TUTTI_HOST_DEVICE void ForEachOctet(const Team& team, std::int64_t count, const Visit& visit) {
  TUTTI_KEEP_LOOP
  for (std::int64_t begin = std::int64_t{team.rank()} * kOctet; begin < count;
       begin += std::int64_t{team.size()} * kOctet) {
    visit(begin, count - begin < kOctet ? static_cast<int>(count - begin) : kOctet);
  }
}

}  // namespace tutti::kernels

#endif  // TUTTI_KERNELS_TEAM_H_
