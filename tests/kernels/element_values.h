// Reads and writes single elements of any dtype, and reduces them one by one: the reference of the kernel tests.
#ifndef TESTS_KERNELS_ELEMENT_VALUES_H_
#define TESTS_KERNELS_ELEMENT_VALUES_H_

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "kernels/float16.h"
#include "tutti/dtype.h"

namespace tutti::kernels {

template <typename T>
T LoadAs(const void* data, std::int64_t i) {
  T value;
  std::memcpy(&value, static_cast<const char*>(data) + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return value;
}

template <typename T>
void StoreAs(void* data, std::int64_t i, T value) {
  std::memcpy(static_cast<char*>(data) + i * static_cast<std::int64_t>(sizeof(T)), &value, sizeof(T));
}

// Element i as long double, which holds every value of every real dtype exactly. A bool is its byte; so is an 8-bit
// floating element, with which nothing computes.
inline long double LoadElement(DType dtype, const void* data, std::int64_t i) {
  switch (dtype) {
    case DType::kF32:
      return LoadAs<float>(data, i);
    case DType::kF64:
      return LoadAs<double>(data, i);
    case DType::kF16:
      return FloatFromFloat16(LoadAs<std::uint16_t>(data, i));
    case DType::kBF16:
      return FloatFromBFloat16(LoadAs<std::uint16_t>(data, i));
    case DType::kI8:
      return LoadAs<std::int8_t>(data, i);
    case DType::kU8:
      return LoadAs<std::uint8_t>(data, i);
    case DType::kI32:
      return LoadAs<std::int32_t>(data, i);
    case DType::kI64:
      return static_cast<long double>(LoadAs<std::int64_t>(data, i));
    case DType::kI16:
      return LoadAs<std::int16_t>(data, i);
    case DType::kU16:
      return LoadAs<std::uint16_t>(data, i);
    case DType::kU32:
      return LoadAs<std::uint32_t>(data, i);
    case DType::kU64:
      return static_cast<long double>(LoadAs<std::uint64_t>(data, i));
    case DType::kBool:
    case DType::kF8E4M3FN:
    case DType::kF8E5M2:
      return LoadAs<std::uint8_t>(data, i);
    case DType::kC64:
    case DType::kC128:
      break;  // complex elements: see LoadNumber
  }
  return 0;
}

inline void StoreElement(DType dtype, void* data, std::int64_t i, long double value) {
  switch (dtype) {
    case DType::kF32:
      return StoreAs(data, i, static_cast<float>(value));
    case DType::kF64:
      return StoreAs(data, i, static_cast<double>(value));
    case DType::kF16:
      return StoreAs(data, i, Float16FromFloat(static_cast<float>(value)));
    case DType::kBF16:
      return StoreAs(data, i, BFloat16FromFloat(static_cast<float>(value)));
    case DType::kI8:
      return StoreAs(data, i, static_cast<std::int8_t>(value));
    case DType::kU8:
      return StoreAs(data, i, static_cast<std::uint8_t>(value));
    case DType::kI32:
      return StoreAs(data, i, static_cast<std::int32_t>(value));
    case DType::kI64:
      return StoreAs(data, i, static_cast<std::int64_t>(value));
    case DType::kI16:
      return StoreAs(data, i, static_cast<std::int16_t>(value));
    case DType::kU16:
      return StoreAs(data, i, static_cast<std::uint16_t>(value));
    case DType::kU32:
      return StoreAs(data, i, static_cast<std::uint32_t>(value));
    case DType::kU64:
      return StoreAs(data, i, static_cast<std::uint64_t>(value));
    case DType::kBool:
    case DType::kF8E4M3FN:
    case DType::kF8E5M2:
      return StoreAs(data, i, static_cast<std::uint8_t>(value));
    case DType::kC64:
    case DType::kC128:
      return;  // complex elements: see StoreNumber
  }
}

// An element of any dtype: the imaginary part of a real one is 0.
using Number = std::complex<long double>;

inline Number LoadNumber(DType dtype, const void* data, std::int64_t i) {
  if (!IsComplex(dtype)) return LoadElement(dtype, data, i);
  return {LoadElement(PartOf(dtype), data, 2 * i), LoadElement(PartOf(dtype), data, 2 * i + 1)};
}

inline void StoreNumber(DType dtype, void* data, std::int64_t i, Number value) {
  if (!IsComplex(dtype)) return StoreElement(dtype, data, i, value.real());
  StoreElement(PartOf(dtype), data, 2 * i, value.real());
  StoreElement(PartOf(dtype), data, 2 * i + 1, value.imag());
}

// The operators that Reduce has for `dtype`.
inline std::vector<ReduceOp> OpsOf(DType dtype) {
  std::vector<ReduceOp> ops;
  for (const ReduceOp op : kAllReduceOps) {
    if (HasOp(dtype, op) && op != ReduceOp::kPremulSum) ops.push_back(op);
  }
  return ops;
}

// Combines `values` from left to right in T.
template <typename T>
T Combined(ReduceOp op, std::int32_t divisor, absl::Span<const long double> values) {
  T result = static_cast<T>(values[0]);
  for (std::size_t s = 1; s < values.size(); ++s) {
    const T operand = static_cast<T>(values[s]);
    if (op == ReduceOp::kMin) result = operand < result ? operand : result;
    if (op == ReduceOp::kMax) result = operand > result ? operand : result;
    if (op == ReduceOp::kProd) result = static_cast<T>(result * operand);
    if (op == ReduceOp::kSum || op == ReduceOp::kAvg) result = static_cast<T>(result + operand);
    if constexpr (std::is_integral_v<T>) {
      if (op == ReduceOp::kBitwiseAnd) result = result & operand;
      if (op == ReduceOp::kBitwiseOr) result = result | operand;
      if (op == ReduceOp::kBitwiseXor) result = result ^ operand;
    }
  }
  return op == ReduceOp::kAvg ? static_cast<T>(result / static_cast<T>(divisor)) : result;
}

// Combines bools: bytes are true unless they are 0.
inline bool CombinedTruth(ReduceOp op, absl::Span<const long double> values) {
  const auto truths = static_cast<std::size_t>(
      std::count_if(values.begin(), values.end(), [](long double value) { return value != 0; }));
  if (op == ReduceOp::kBitwiseXor) return truths % 2 == 1;
  const bool all = op == ReduceOp::kProd || op == ReduceOp::kMin || op == ReduceOp::kBitwiseAnd;
  return all ? truths == values.size() : truths > 0;
}

// What Reduce promises for one real element (integers: as long as products fit into 64 bits).
inline long double ReducedElement(DType dtype, ReduceOp op, std::int32_t divisor,
                                  absl::Span<const long double> values) {
  if (dtype == DType::kF64) return Combined<double>(op, divisor, values);
  std::uint8_t element[8];
  if (IsFloating(dtype)) {
    StoreElement(dtype, element, 0, Combined<float>(op, divisor, values));
    return LoadElement(dtype, element, 0);
  }
  if (dtype == DType::kBool) return CombinedTruth(op, values) ? 1 : 0;
  const ReduceOp fold = op == ReduceOp::kAvg ? ReduceOp::kSum : op;
  const auto wide = dtype == DType::kU64 ? Combined<std::uint64_t>(fold, 1, values)
                                         : static_cast<std::uint64_t>(Combined<std::int64_t>(fold, 1, values));
  std::memcpy(element, &wide, sizeof(wide));  // the low bytes: wraps around
  const long double wrapped = LoadElement(dtype, element, 0);
  return op == ReduceOp::kAvg ? std::trunc(wrapped / divisor) : wrapped;
}

// The product of complex numbers whose parts are T, left to right.
template <typename T>
Number Product(absl::Span<const Number> values) {
  T real = static_cast<T>(values[0].real());
  T imaginary = static_cast<T>(values[0].imag());
  for (std::size_t s = 1; s < values.size(); ++s) {
    const T c = static_cast<T>(values[s].real());
    const T d = static_cast<T>(values[s].imag());
    const T product = real * c - imaginary * d;
    imaginary = real * d + imaginary * c;
    real = product;
  }
  return {real, imaginary};
}

// What Reduce promises for one element of any dtype.
inline Number ReducedNumber(DType dtype, ReduceOp op, std::int32_t divisor, absl::Span<const Number> values) {
  if (IsComplex(dtype) && op == ReduceOp::kProd) {
    return dtype == DType::kC64 ? Product<float>(values) : Product<double>(values);
  }
  absl::InlinedVector<long double, 16> real;
  absl::InlinedVector<long double, 16> imaginary;
  for (const Number& value : values) {
    real.push_back(value.real());
    imaginary.push_back(value.imag());
  }
  const long double first = ReducedElement(PartOf(dtype), op, divisor, real);
  if (!IsComplex(dtype)) return first;
  return {first, ReducedElement(PartOf(dtype), op, divisor, imaginary)};
}

}  // namespace tutti::kernels

#endif  // TESTS_KERNELS_ELEMENT_VALUES_H_
