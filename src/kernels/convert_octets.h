// Convert and Combine on memory of a device: reduce.h and combine.h say what they compute.
#ifndef TUTTI_KERNELS_CONVERT_OCTETS_H_
#define TUTTI_KERNELS_CONVERT_OCTETS_H_

#include <cstdint>

#include "kernels/combine.h"
#include "kernels/convert_element.h"
#include "kernels/reduce_octets.h"

namespace tutti::kernels {

// The elements as they are; T is an unsigned type of their size.
template <typename T>
struct CopyOctets {
  TUTTI_HOST_DEVICE void At(std::int64_t begin, int count) const {
    T elements[kOctet];
    LoadElements(static_cast<const T*>(src) + begin, count, elements);
    StoreElements(elements, count, static_cast<T*>(dst) + begin);
  }

  void* dst;
  const void* src;
};

// From one to another of f32, f16 and bf16.
template <class From, class To>
struct ConvertFloatingOctets {
  TUTTI_HOST_DEVICE void At(std::int64_t begin, int count) const {
    float lanes[kOctet];
    LoadLanes<From>(static_cast<const typename From::Element*>(src) + begin, count, lanes);
    StoreLanes<To>(lanes, count, static_cast<typename To::Element*>(dst) + begin);
  }

  void* dst;
  const void* src;
};

// From any other real dtype, which is chosen when the kernel runs: the kernels of all pairs would be ten times as many.
template <typename To>
struct ConvertOctets {
  TUTTI_HOST_DEVICE void At(std::int64_t begin, int count) const {
    switch (src_type) {
      case DType::kF32:
        return ConvertFrom<float>(begin, count);
      case DType::kF64:
        return ConvertFrom<double>(begin, count);
      case DType::kF16:
        return ConvertFrom<Float16>(begin, count);
      case DType::kBF16:
        return ConvertFrom<BFloat16>(begin, count);
      case DType::kI8:
        return ConvertFrom<std::int8_t>(begin, count);
      case DType::kU8:
        return ConvertFrom<std::uint8_t>(begin, count);
      case DType::kI16:
        return ConvertFrom<std::int16_t>(begin, count);
      case DType::kU16:
        return ConvertFrom<std::uint16_t>(begin, count);
      case DType::kI32:
        return ConvertFrom<std::int32_t>(begin, count);
      case DType::kU32:
        return ConvertFrom<std::uint32_t>(begin, count);
      case DType::kI64:
        return ConvertFrom<std::int64_t>(begin, count);
      case DType::kU64:
        return ConvertFrom<std::uint64_t>(begin, count);
      default:
        return;  // refused by the contract of Convert
    }
  }

  template <typename From>
  TUTTI_HOST_DEVICE void ConvertFrom(std::int64_t begin, int count) const {
    From from[kOctet];
    To to[kOctet];
    LoadElements(static_cast<const From*>(src) + begin, count, from);
    TUTTI_UNROLL
    for (int i = 0; i < kOctet; ++i) to[i] = ConvertElement<To>(from[i]);
    StoreElements(to, count, static_cast<To*>(dst) + begin);
  }

  void* dst;
  const void* src;
  DType src_type;
};

template <class Format>
struct CombineOctets {
  using Element = typename Format::Element;
  using Lane = typename Format::Lane;

  TUTTI_HOST_DEVICE void At(std::int64_t begin, int count) const {
    Lane sum[kOctet];
    LoadLanes<Format>(SourceAt<Element>(list, 0, begin), count, sum);
    TUTTI_UNROLL
    for (int i = 0; i < kOctet; ++i) sum[i] = TermOf(sum[i], coefficients[0]);
    for (int s = 1; s < list.num_srcs; ++s) {
      Lane lanes[kOctet];
      LoadLanes<Format>(SourceAt<Element>(list, s, begin), count, lanes);
      TUTTI_UNROLL
      for (int i = 0; i < kOctet; ++i) sum[i] += TermOf(lanes[i], coefficients[s]);
    }
    if (results == Results::kFinite) {
      TUTTI_UNROLL
      for (int i = 0; i < kOctet; ++i) sum[i] = IsFinite(sum[i]) ? sum[i] : Lane{0};
    }
    Element elements[kOctet];
    ToElements<Format>(sum, elements);
    StoreEverywhere(list, begin, count, elements);
  }

  OperandList list;
  Coefficient coefficients[kMaxOperands];
  Results results;
};

}  // namespace tutti::kernels

#endif  // TUTTI_KERNELS_CONVERT_OCTETS_H_
