// Reads and writes single elements of any dtype, and reduces them one by one: the reference of the kernel tests.
#ifndef TESTS_KERNELS_ELEMENT_VALUES_H_
#define TESTS_KERNELS_ELEMENT_VALUES_H_

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

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

// long double holds every value of every dtype exactly.
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
  }
}

// `values` combined left to right in T.
template <typename T>
T Combined(ReduceOp op, std::int32_t divisor, const std::vector<long double>& values) {
  T result = static_cast<T>(values[0]);
  for (std::size_t s = 1; s < values.size(); ++s) {
    const T operand = static_cast<T>(values[s]);
    if (op == ReduceOp::kMin) result = operand < result ? operand : result;
    if (op == ReduceOp::kMax) result = operand > result ? operand : result;
    if (op == ReduceOp::kProd) result = static_cast<T>(result * operand);
    if (op == ReduceOp::kSum || op == ReduceOp::kAvg) result = static_cast<T>(result + operand);
  }
  return op == ReduceOp::kAvg ? static_cast<T>(result / static_cast<T>(divisor)) : result;
}

// What Reduce promises for one element (integers: as long as products fit into 64 bits).
inline long double ReducedElement(DType dtype, ReduceOp op, std::int32_t divisor,
                                  const std::vector<long double>& values) {
  if (dtype == DType::kF64) return Combined<double>(op, divisor, values);
  std::uint8_t element[8];
  if (IsFloating(dtype)) {
    StoreElement(dtype, element, 0, Combined<float>(op, divisor, values));
    return LoadElement(dtype, element, 0);
  }
  const std::int64_t wide = Combined<std::int64_t>(op == ReduceOp::kAvg ? ReduceOp::kSum : op, 1, values);
  std::memcpy(element, &wide, sizeof(wide));  // the low bytes: wraps around
  const long double wrapped = LoadElement(dtype, element, 0);
  return op == ReduceOp::kAvg ? std::trunc(wrapped / divisor) : wrapped;
}

}  // namespace tutti::kernels

#endif  // TESTS_KERNELS_ELEMENT_VALUES_H_
