// The inputs that tests give to collectives and the outputs that collectives promise for them, element by element.
#ifndef TESTS_HARNESS_EXPECTED_RESULTS_H_
#define TESTS_HARNESS_EXPECTED_RESULTS_H_

#include <cstdint>
#include <optional>

#include "tests/kernels/element_values.h"
#include "tutti/collective.h"

namespace tutti {

// Element `i` of the input of `rank`. Integers so small that every order of summation in the accumulator gives the same
// bits, but so large that sums of 16-bit types have to be rounded, so that rounding twice shows. Bools are equal on all
// ranks at some elements, and differ at others. Products of complex numbers turn around in all four directions.
kernels::Number InputElement(const CollectiveSpec& spec, Rank rank, std::int64_t i);
// Writes the input of `rank` to the elements `first` … `first` + `count` - 1 of `data`.
void FillInput(const CollectiveSpec& spec, Rank rank, void* data, std::int64_t first, std::int64_t count);

// The factor by which ReduceOp::kPremulSum multiplies the elements of `rank`: products of 16-bit elements have to be
// rounded.
double FactorOf(const CollectiveSpec& spec, Rank rank);

// The block that all_to_all_v moves from one rank to another: `unit` times 0, 1, 2 or 3 elements.
std::int64_t BlockCount(std::int64_t unit, Rank from, Rank to);

// The call as `rank` makes it. `count` is spec.count, but for all_to_all_v, where it is the unit of the blocks.
CollectiveSpec SpecOf(CollectiveSpec spec, std::int64_t count, Rank rank, int size);

// Element `i` of the output of `rank`.
kernels::Number OutputElement(const CollectiveSpec& spec, std::int64_t count, Rank rank, int size, std::int64_t i);
// Writes the expected output of `rank` to `data`. `count` as for SpecOf.
void FillOutput(const CollectiveSpec& spec, std::int64_t count, Rank rank, int size, void* data);
// The index of the first wrong element in the output of `rank`; nullopt: all are right.
std::optional<std::int64_t> FirstWrongElement(const CollectiveSpec& spec, std::int64_t count, Rank rank, int size,
                                              const void* out);

}  // namespace tutti

#endif  // TESTS_HARNESS_EXPECTED_RESULTS_H_
