// A team: the threads that encode or decode one block together. Functions that work on a block are templates over the
// team, the same for a team of one thread on the host as for a warp or a thread block of a GPU (cuda_team.h).
#ifndef TUTTI_KERNELS_TEAM_H_
#define TUTTI_KERNELS_TEAM_H_

#include <cstdint>

#include "kernels/host_device.h"
#include "kernels/octet.h"
#include "kernels/value_range.h"

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

// Calls visit(begin, n) for each octet [begin, begin + n) of `count` elements that is this thread's.
template <class Team, class Visit>
TUTTI_HOST_DEVICE void ForEachOctet(const Team& team, std::int64_t count, const Visit& visit) {
  for (std::int64_t begin = std::int64_t{team.rank()} * kOctet; begin < count;
       begin += std::int64_t{team.size()} * kOctet) {
    visit(begin, count - begin < kOctet ? static_cast<int>(count - begin) : kOctet);
  }
}

// The octets of a range of values that are this thread's, for two passes over them: the octets of a short range stay in
// registers between the passes.
class HeldOctets {
 public:
  // Calls visit(begin, n, octet) for each octet.
  template <class Team, class Visit>
  TUTTI_HOST_DEVICE void Load(const Team& team, const ValueSource& values, std::int64_t count, const Visit& visit) {
    const std::int64_t stride = std::int64_t{team.size()} * kOctet;
    std::int64_t begin = std::int64_t{team.rank()} * kOctet;
    TUTTI_UNROLL
    for (int k = 0; k < kHeld; ++k, begin += stride) {
      const int n = LengthAt(begin, count);
      if (n == 0) continue;
      values.LoadOctet(begin, n, held_[k]);
      visit(begin, n, held_[k]);
    }
    VisitRest(values, begin, count, stride, visit);
  }

  // Calls visit(begin, n, octet) for each octet, after Load with the same range.
  template <class Team, class Visit>
  TUTTI_HOST_DEVICE void Revisit(const Team& team, const ValueSource& values, std::int64_t count,
                                 const Visit& visit) const {
    const std::int64_t stride = std::int64_t{team.size()} * kOctet;
    std::int64_t begin = std::int64_t{team.rank()} * kOctet;
    TUTTI_UNROLL
    for (int k = 0; k < kHeld; ++k, begin += stride) {
      const int n = LengthAt(begin, count);
      if (n > 0) visit(begin, n, held_[k]);
    }
    VisitRest(values, begin, count, stride, visit);
  }

 private:
  static constexpr int kHeld = 4;

  TUTTI_HOST_DEVICE static int LengthAt(std::int64_t begin, std::int64_t count) {
    if (begin >= count) return 0;
    return count - begin < kOctet ? static_cast<int>(count - begin) : kOctet;
  }
  template <class Visit>
  TUTTI_HOST_DEVICE static void VisitRest(const ValueSource& values, std::int64_t begin, std::int64_t count,
                                          std::int64_t stride, const Visit& visit) {
    for (; begin < count; begin += stride) {
      float octet[kOctet];
      const int n = LengthAt(begin, count);
      values.LoadOctet(begin, n, octet);
      visit(begin, n, octet);
    }
  }

  float held_[kHeld][kOctet];
};

}  // namespace tutti::kernels

#endif  // TUTTI_KERNELS_TEAM_H_
