// Counts of instructions, for programs tests/<folder>/instructions.cc: callgrind, under which they run, writes a file
// for each count, and instructions.py, which starts them, compares the counts with tests/<folder>/instructions.json.
#ifndef TUTTI_TESTS_HARNESS_COUNT_INSTRUCTIONS_H_
#define TUTTI_TESTS_HARNESS_COUNT_INSTRUCTIONS_H_

#include <valgrind/callgrind.h>

#include <cstdint>
#include <cstdio>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "hwy/targets.h"

namespace tutti {

// Counts the instructions that `call` takes in the program's main thread. The figure is that of one of the `units`
// things that `call` does (elements, steps, frames). The caller has done the same before, so that what happens once
// only is not counted.
inline void CountInstructions(absl::string_view name, std::int64_t units, absl::FunctionRef<void()> call) {
  const std::string what = absl::StrCat(units, " ", name);
  CALLGRIND_ZERO_STATS;
  call();
  CALLGRIND_DUMP_STATS_AT(what.c_str());
}

// The main of a program that counts: calls `count_all`, on AVX2, the best instruction set that valgrind knows.
inline int CountOnAvx2(absl::FunctionRef<void()> count_all) {
  if ((hwy::SupportedTargets() & HWY_AVX2) == 0) {
    std::puts("this processor has no AVX2, of which the figures are");
    return 77;
  }
  hwy::SetSupportedTargetsForTest(HWY_AVX2);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  count_all();
  return 0;
}

}  // namespace tutti

#endif  // TUTTI_TESTS_HARNESS_COUNT_INSTRUCTIONS_H_
