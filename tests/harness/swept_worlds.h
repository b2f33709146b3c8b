// Which worlds a test visits that verifies plans for worlds of many sizes.
#ifndef TUTTI_TESTS_HARNESS_SWEPT_WORLDS_H_
#define TUTTI_TESTS_HARNESS_SWEPT_WORLDS_H_

#include "absl/base/config.h"

namespace tutti {

// The most ranks of such a world. Under AddressSanitizer plans take ten times as long to build and to verify; what the
// sanitizer looks for is in code that small worlds run, too.
#ifdef ABSL_HAVE_ADDRESS_SANITIZER
inline constexpr int kMostRanksSwept = 5;
#else
inline constexpr int kMostRanksSwept = 64;
#endif

}  // namespace tutti

#endif  // TUTTI_TESTS_HARNESS_SWEPT_WORLDS_H_
