// Reduce, ReduceAndRound and Divide on memory of a device. Every octet of the result is computed by one thread, from
// left to right, as reduce.h says.
#ifndef TUTTI_KERNELS_REDUCE_OCTETS_H_
#define TUTTI_KERNELS_REDUCE_OCTETS_H_

#include <cstdint>

#include "kernels/floating_element.h"
#include "kernels/host_device.h"
#include "kernels/integer_element.h"
#include "kernels/octet.h"
#include "kernels/operand_list.h"
#include "kernels/reduce_bits.h"
#include "kernels/value_range.h"

namespace tutti::kernels {

template <typename Element>
TUTTI_HOST_DEVICE const void* SourceAt(const OperandList& list, int source, std::int64_t begin) {
  return static_cast<const Element*>(list.srcs[source]) + begin;
}

template <typename Element, int kMax>
TUTTI_HOST_DEVICE void StoreEverywhere(const OperandList& list, std::int64_t begin, int count,
                                       const Element (&elements)[kMax]) {
  for (int k = 0; k < list.num_dsts; ++k) {
    StoreElements(elements, count, static_cast<Element*>(list.dsts[k]) + begin);
  }
}

template <class From, class To>
struct ReduceFloatingOctets {
  using Lane = typename From::Lane;

  TUTTI_HOST_DEVICE void At(std::int64_t begin, int count) const {
    Lane result[kOctet];
    LoadLanes<From>(SourceAt<typename From::Element>(list, 0, begin), count, result);
    for (int s = 1; s < list.num_srcs; ++s) {
      Lane lanes[kOctet];
      LoadLanes<From>(SourceAt<typename From::Element>(list, s, begin), count, lanes);
      TUTTI_UNROLL
      for (int i = 0; i < kOctet; ++i) result[i] = CombineFloating(op, result[i], lanes[i]);
    }
    if (divides) {
      TUTTI_UNROLL
      for (int i = 0; i < kOctet; ++i) result[i] = quotients.Of(result[i]);
    }
    typename To::Element elements[kOctet];
    ToElements<To>(result, elements);
    StoreEverywhere(list, begin, count, elements);
  }

  OperandList list;
  ReduceOp op;
  bool divides;
  Quotients<Lane> quotients;
};

template <typename T>
struct ReduceIntegerOctets {
  TUTTI_HOST_DEVICE void At(std::int64_t begin, int count) const {
    T result[kOctet];
    LoadElements(SourceAt<T>(list, 0, begin), count, result);
    for (int s = 1; s < list.num_srcs; ++s) {
      T elements[kOctet];
      LoadElements(SourceAt<T>(list, s, begin), count, elements);
      TUTTI_UNROLL
      for (int i = 0; i < kOctet; ++i) result[i] = Combine(result[i], elements[i]);
    }
    if (op == ReduceOp::kAvg) {
      TUTTI_UNROLL
      for (int i = 0; i < kOctet; ++i) result[i] = Quotient(result[i], divisor);
    }
    StoreEverywhere(list, begin, count, result);
  }

  TUTTI_HOST_DEVICE T Combine(T a, T b) const {
    switch (op) {
      case ReduceOp::kMin:
        return CombineIntegers<ReduceOp::kMin>(a, b);
      case ReduceOp::kMax:
        return CombineIntegers<ReduceOp::kMax>(a, b);
      case ReduceOp::kProd:
        return CombineIntegers<ReduceOp::kProd>(a, b);
      default:
        return CombineIntegers<ReduceOp::kSum>(a, b);
    }
  }

  OperandList list;
  ReduceOp op;
  std::int32_t divisor;
};

// The bitwise operators on bytes, or with kTruths the operators of bools.
template <bool kTruths>
struct ReduceBitOctets {
  TUTTI_HOST_DEVICE void At(std::int64_t begin, int count) const {
    std::uint8_t result[kOctet];
    Load(0, begin, count, result);
    for (int s = 1; s < list.num_srcs; ++s) {
      std::uint8_t bytes[kOctet];
      Load(s, begin, count, bytes);
      TUTTI_UNROLL
      for (int i = 0; i < kOctet; ++i) result[i] = Combine(result[i], bytes[i]);
    }
    StoreEverywhere(list, begin, count, result);
  }

  TUTTI_HOST_DEVICE void Load(int source, std::int64_t begin, int count, std::uint8_t (&bytes)[kOctet]) const {
    LoadElements(SourceAt<std::uint8_t>(list, source, begin), count, bytes);
    if constexpr (kTruths) {
      TUTTI_UNROLL
      for (int i = 0; i < kOctet; ++i) bytes[i] = bytes[i] != 0 ? 1 : 0;
    }
  }
  TUTTI_HOST_DEVICE std::uint8_t Combine(std::uint8_t a, std::uint8_t b) const {
    if (op == ReduceOp::kBitwiseAnd) return a & b;
    if (op == ReduceOp::kBitwiseOr) return a | b;
    return a ^ b;
  }

  OperandList list;
  ReduceOp op;  // bitwise
};

template <typename Part>
struct MultiplyComplexOctets {
  TUTTI_HOST_DEVICE void At(std::int64_t begin, int count) const {
    Part result[2 * kOctet];
    LoadElements(SourceAt<Part>(list, 0, 2 * begin), 2 * count, result);
    for (int s = 1; s < list.num_srcs; ++s) {
      Part parts[2 * kOctet];
      LoadElements(SourceAt<Part>(list, s, 2 * begin), 2 * count, parts);
      TUTTI_UNROLL
      for (int i = 0; i < 2 * kOctet; i += 2) {
        const Part real = result[i] * parts[i] - result[i + 1] * parts[i + 1];
        result[i + 1] = result[i] * parts[i + 1] + result[i + 1] * parts[i];
        result[i] = real;
      }
    }
    StoreEverywhere(list, 2 * begin, 2 * count, result);
  }

  OperandList list;
};

}  // namespace tutti::kernels

#endif  // TUTTI_KERNELS_REDUCE_OCTETS_H_
