// What differs between the elements that a test has got and those that it expects, in numbers.
#ifndef TESTS_KERNELS_DIFFERENCES_H_
#define TESTS_KERNELS_DIFFERENCES_H_

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "tests/kernels/element_values.h"
#include "tutti/dtype.h"

namespace tutti::kernels {

// Whether all bits of element `i` are equal, or both elements are NaN.
inline bool AreEqual(DType dtype, const void* got, const void* expected, std::int64_t i) {
  const std::int64_t at = i * SizeOf(dtype);
  const auto bytes = static_cast<std::size_t>(SizeOf(dtype));
  if (std::memcmp(static_cast<const char*>(got) + at, static_cast<const char*>(expected) + at, bytes) == 0) return true;
  return IsFloating(dtype) && std::isnan(LoadElement(dtype, got, i)) && std::isnan(LoadElement(dtype, expected, i));
}

// The element, with as many digits as tell it from every other of its type.
inline std::string ElementText(DType dtype, const void* data, std::int64_t i) {
  const Number number = LoadNumber(dtype, data, i);
  const int digits = SizeOf(PartOf(dtype)) > 4 ? 20 : 9;
  if (IsComplex(dtype)) return absl::StrFormat("(%.*g, %.*g)", digits, number.real(), digits, number.imag());
  return absl::StrFormat("%.*g", digits, number.real());
}

// "2 of 53 elements of f16 differ: element 5 is 12, expected 15; element 6 is 0, expected 18", the first four of them;
// empty when none differs.
inline std::string Differences(DType dtype, const void* got, const void* expected, std::int64_t count) {
  constexpr int kMax = 4;
  std::string first;
  std::int64_t differ = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    if (AreEqual(dtype, got, expected, i) || ++differ > kMax) continue;
    absl::StrAppend(&first, differ == 1 ? "" : "; ", "element ", i, " is ", ElementText(dtype, got, i), ", expected ",
                    ElementText(dtype, expected, i));
  }
  if (differ == 0) return "";
  return absl::StrCat(differ, " of ", count, " elements of ", Name(dtype), " differ: ", first,
                      differ > kMax ? "; ..." : "");
}

// As above, of two vectors, which may differ in length.
inline std::string Differences(absl::Span<const float> got, absl::Span<const float> expected) {
  if (got.size() != expected.size()) return absl::StrCat(got.size(), " elements, expected ", expected.size());
  return Differences(DType::kF32, got.data(), expected.data(), static_cast<std::int64_t>(got.size()));
}

// The first element of `got` that is not what `expected` gives for its index, "element 5 is 12, expected 15"; empty
// when there is none. Long buffers take less time than by an ASSERT_EQ for each element, which without optimization
// takes longer than all that a collective does with the element.
template <class Expected>
std::string FirstDifference(absl::Span<const float> got, const Expected& expected) {
  const float* const data = got.data();
  const auto count = static_cast<std::int64_t>(got.size());
  for (std::int64_t i = 0; i < count; ++i) {
    const float should = expected(i);
    if (data[i] != should) return absl::StrFormat("element %d is %.9g, expected %.9g", i, data[i], should);
  }
  return "";
}

}  // namespace tutti::kernels

#endif  // TESTS_KERNELS_DIFFERENCES_H_
