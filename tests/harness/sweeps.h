// How far tests go that visit worlds of many sizes, or do one thing many times.
#ifndef TUTTI_TESTS_HARNESS_SWEEPS_H_
#define TUTTI_TESTS_HARNESS_SWEEPS_H_

#include <initializer_list>
#include <vector>

#include "absl/base/config.h"

namespace tutti {

// Sweeps are short under AddressSanitizer: code takes up to ten times as long there, and what the sanitizer looks for
// is in code that small worlds and few repetitions run, too. ThreadSanitizer gets whole sweeps: races are rare events.
#ifdef ABSL_HAVE_ADDRESS_SANITIZER
inline constexpr bool kShortSweeps = true;
#else
inline constexpr bool kShortSweeps = false;
#endif

// The most ranks of a world that a sweep visits.
inline constexpr int kMaxRanksSwept = kShortSweeps ? 5 : 64;

// The sizes of the worlds that a sweep visits, among `sizes`.
inline std::vector<int> SweptWorlds(std::initializer_list<int> sizes) {
  std::vector<int> swept;
  for (const int size : sizes) {
    if (size <= kMaxRanksSwept) swept.push_back(size);
  }
  return swept;
}

// How often a sweep does what a whole sweep does `times` times: steps of a training, rounds with other random numbers,
// calls in a row.
constexpr int Repetitions(int times) { return kShortSweeps ? (times + 4) / 5 : times; }

}  // namespace tutti

#endif  // TUTTI_TESTS_HARNESS_SWEEPS_H_
