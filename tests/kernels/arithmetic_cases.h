// Cases of the device kernels that compute with elements of all dtypes; tests/codecs/message_cases.h has the others.
#ifndef TESTS_KERNELS_ARITHMETIC_CASES_H_
#define TESTS_KERNELS_ARITHMETIC_CASES_H_

#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/reduce.h"
#include "tests/codecs/inputs.h"
#include "tests/kernels/device_case.h"

namespace tutti::kernels {

inline constexpr std::int64_t kCaseCounts[] = {0, 1, 7, 8, 9, 16, 257, 4099};

// Elements that are everything a kernel may meet: half of them any bits at all (NaN, infinities, subnormals), the
// others numbers of moderate size. Bools are any bytes.
inline CaseBuffer AnyElements(DType dtype, std::int64_t count, std::int64_t offset, std::uint64_t seed) {
  CaseBuffer buffer = BufferOf(dtype, count, offset);
  SplitMix random(seed);
  const DType part = PartOf(dtype);
  const std::int64_t first = offset * SizeOf(dtype) / SizeOf(part);
  const std::int64_t parts = count * SizeOf(dtype) / SizeOf(part);
  for (std::int64_t i = first; i < first + parts; ++i) {
    const std::uint64_t bits = random.Next();
    const float moderate = random.Symmetric() * 100;
    if (random.Next() % 2 == 0) {
      std::memcpy(&buffer.bytes[static_cast<std::size_t>(i * SizeOf(part))], &bits,
                  static_cast<std::size_t>(SizeOf(part)));
    } else {
      StoreElement(part, buffer.bytes.data(), i, IsFloating(part) ? moderate : std::trunc(std::abs(moderate)));
    }
  }
  return buffer;
}

// The addresses of element `offset` of the buffers [begin, end).
template <typename Pointer>
std::vector<Pointer> ElementsOf(absl::Span<std::uint8_t* const> memory, std::size_t begin, std::size_t end,
                                std::int64_t offset_bytes) {
  std::vector<Pointer> pointers;
  for (std::size_t i = begin; i < end; ++i) pointers.push_back(memory[i] + offset_bytes);
  return pointers;
}

// One case of Reduce, with `sources` sources and `destinations` destinations, of which the first is the first source
// when it is `in_place`.
struct ReduceShape {
  std::size_t sources;
  std::size_t destinations;
  bool in_place;
  std::int64_t offset;
  std::int32_t divisor;
};
inline constexpr ReduceShape kReduceShapes[] = {
    {1, 1, false, 0, 1}, {2, 1, true, 0, 2}, {3, 2, false, 1, 3}, {5, 1, true, 3, 5}, {8, 1, false, 0, 8}};

inline void AddReduceCase(DType src_type, DType dst_type, ReduceOp op, const ReduceShape& shape, std::int64_t count,
                          const CaseVisitor& visit) {
  DeviceCase the_case;
  the_case.name = absl::StrCat("reduce ", Name(src_type), " to ", Name(dst_type), " ", Name(op), " of ", shape.sources,
                               ", ", count, " elements");
  for (std::size_t s = 0; s < shape.sources; ++s) {
    the_case.buffers.push_back(AnyElements(src_type, count, shape.offset, 17 * s + static_cast<std::uint64_t>(count)));
  }
  const bool in_place = shape.in_place && src_type == dst_type;
  for (std::size_t d = 0; d < shape.destinations; ++d) {
    the_case.buffers.push_back(BufferOf(dst_type, count, shape.offset));
  }
  const auto pointers = [=](absl::Span<std::uint8_t* const> memory) {
    auto srcs = ElementsOf<const void*>(memory, 0, shape.sources, shape.offset * SizeOf(src_type));
    auto dsts = ElementsOf<void*>(memory, shape.sources, memory.size(), shape.offset * SizeOf(dst_type));
    if (in_place) dsts[0] = memory[0] + shape.offset * SizeOf(src_type);
    return std::pair(dsts, srcs);
  };
  the_case.run = [=](const DeviceKernels& kernels, Stream stream, absl::Span<std::uint8_t* const> memory) {
    const auto [dsts, srcs] = pointers(memory);
    if (src_type == dst_type) return kernels.reduce(stream, src_type, op, shape.divisor, dsts, srcs, count);
    return kernels.reduce_and_round(stream, dst_type, op, shape.divisor, dsts, srcs, count);
  };
  the_case.reference = [=](absl::Span<std::uint8_t* const> memory) {
    const auto [dsts, srcs] = pointers(memory);
    if (src_type == dst_type) return Reduce(src_type, op, shape.divisor, dsts, srcs, count, Stores::kCached);
    ReduceAndRound(dst_type, op, shape.divisor, dsts, srcs, count, Stores::kCached);
  };
  visit(the_case);
}

inline void VisitReduceCases(const CaseVisitor& visit) {
  for (const DType dtype : kAllDTypes) {
    for (const ReduceOp op : OpsOf(dtype)) {
      for (const ReduceShape& shape : kReduceShapes) {
        for (const std::int64_t count : kCaseCounts) AddReduceCase(dtype, dtype, op, shape, count, visit);
      }
    }
  }
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    for (const ReduceOp op : OpsOf(dtype)) {
      for (const ReduceShape& shape : kReduceShapes) AddReduceCase(DType::kF32, dtype, op, shape, 4099, visit);
    }
  }
}

inline void VisitConvertCases(const CaseVisitor& visit) {
  for (const DType from : kAllDTypes) {
    for (const DType to : kAllDTypes) {
      if (!Converts(from, to)) continue;
      for (const std::int64_t count : kCaseCounts) {
        for (const std::int64_t offset : {0, 1}) {
          visit({.name = absl::StrCat("convert ", Name(from), " to ", Name(to), ", ", count, " elements"),
                 .buffers = {AnyElements(from, count, offset, 5), BufferOf(to, count, offset)},
                 .run =
                     [=](const DeviceKernels& kernels, Stream stream, absl::Span<std::uint8_t* const> memory) {
                       return kernels.convert(stream, to, memory[1] + offset * SizeOf(to), from,
                                              memory[0] + offset * SizeOf(from), count);
                     },
                 .reference =
                     [=](absl::Span<std::uint8_t* const> memory) {
                       Convert(to, memory[1] + offset * SizeOf(to), from, memory[0] + offset * SizeOf(from), count,
                               Stores::kCached);
                     }});
        }
      }
    }
  }
}

inline void VisitScaleCases(const CaseVisitor& visit) {
  for (const DType dtype : kAllDTypes) {
    for (const std::int64_t count : kCaseCounts) {
      if (HasOp(dtype, ReduceOp::kAvg)) {
        for (const std::int32_t divisor : {1, 2, 3, 64, 1000}) {
          visit({.name = absl::StrCat("divide ", Name(dtype), " by ", divisor, ", ", count, " elements"),
                 .buffers = {AnyElements(dtype, count, 0, 6)},
                 .run =
                     [=](const DeviceKernels& kernels, Stream stream, absl::Span<std::uint8_t* const> memory) {
                       return kernels.divide(stream, dtype, memory[0], memory[0], divisor, count);
                     },
                 .reference =
                     [=](absl::Span<std::uint8_t* const> memory) {
                       Divide(dtype, memory[0], memory[0], divisor, count);
                     }});
        }
      }
      if (HasOp(dtype, ReduceOp::kPremulSum)) {
        visit({.name = absl::StrCat("multiply ", Name(dtype), ", ", count, " elements"),
               .buffers = {AnyElements(dtype, count, 0, 7), BufferOf(dtype, count)},
               .run =
                   [=](const DeviceKernels& kernels, Stream stream, absl::Span<std::uint8_t* const> memory) {
                     return kernels.multiply(stream, dtype, memory[1], memory[0], 0.1, count);
                   },
               .reference =
                   [=](absl::Span<std::uint8_t* const> memory) { Multiply(dtype, memory[1], memory[0], 0.1, count); }});
      }
    }
  }
}

inline void VisitCombineCases(const CaseVisitor& visit) {
  static constexpr Coefficient kCoefficients[] = {{1, 3}, {-1, 1}, {0.3, 1}, {2, 7}};
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kF16, DType::kBF16}) {
    for (const Results results : {Results::kAll, Results::kFinite}) {
      for (const std::size_t sources : {1, 2, 4}) {
        for (const std::int64_t count : kCaseCounts) {
          DeviceCase the_case;
          the_case.name = absl::StrCat("combine ", sources, " of ", Name(dtype), ", ", count, " elements");
          for (std::size_t s = 0; s < sources; ++s) the_case.buffers.push_back(AnyElements(dtype, count, 0, s));
          the_case.run = [=](const DeviceKernels& kernels, Stream stream, absl::Span<std::uint8_t* const> memory) {
            return kernels.combine(stream, dtype, memory[0], ElementsOf<const void*>(memory, 0, sources, 0),
                                   kCoefficients, count, results);
          };
          the_case.reference = [=](absl::Span<std::uint8_t* const> memory) {
            Combine(dtype, memory[0], ElementsOf<const void*>(memory, 0, sources, 0), kCoefficients, count, results);
          };
          visit(the_case);
        }
      }
    }
  }
}

inline void VisitAdamCases(const CaseVisitor& visit) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const float weight_decay : {0.0f, 0.01f}) {
      const AdamFactors factors = {.beta1 = 0.9f,
                                   .from_gradient1 = 0.1f,
                                   .beta2 = 0.99f,
                                   .from_gradient2 = 0.01f,
                                   .weight_decay = weight_decay,
                                   .step_size = 0.25f,
                                   .correction = 0.7f,
                                   .epsilon = 1e-6f};
      for (const std::int64_t count : kCaseCounts) {
        // Weights, gradient, m, v.
        std::vector<CaseBuffer> buffers = {AnyElements(dtype, count, 0, 1), AnyElements(dtype, count, 0, 2),
                                           AnyElements(DType::kF32, count, 0, 3),
                                           AnyElements(DType::kF32, count, 0, 4)};
        const auto m = [](absl::Span<std::uint8_t* const> memory) { return reinterpret_cast<float*>(memory[2]); };
        const auto v = [](absl::Span<std::uint8_t* const> memory) { return reinterpret_cast<float*>(memory[3]); };
        const std::string what = absl::StrCat(" ", Name(dtype), ", ", count, " elements");
        visit({.name = "blend into momentum" + what,
               .buffers = buffers,
               .run =
                   [=](const DeviceKernels& kernels, Stream stream, absl::Span<std::uint8_t* const> memory) {
                     return kernels.blend_into_momentum(stream, dtype, memory[1], memory[0], m(memory), count, factors);
                   },
               .reference =
                   [=](absl::Span<std::uint8_t* const> memory) {
                     BlendIntoMomentum(dtype, memory[1], memory[0], m(memory), count, factors);
                   }});
        visit({.name = "adam" + what,
               .buffers = buffers,
               .run =
                   [=](const DeviceKernels& kernels, Stream stream, absl::Span<std::uint8_t* const> memory) {
                     return kernels.adam_step(stream, dtype, memory[0], memory[1], m(memory), v(memory), count,
                                              factors);
                   },
               .reference =
                   [=](absl::Span<std::uint8_t* const> memory) {
                     AdamStep(dtype, memory[0], memory[1], m(memory), v(memory), count, factors);
                   }});
        visit({.name = "frozen adam" + what,
               .buffers = buffers,
               .run =
                   [=](const DeviceKernels& kernels, Stream stream, absl::Span<std::uint8_t* const> memory) {
                     return kernels.frozen_adam_step(stream, dtype, memory[0], memory[1], m(memory), v(memory), count,
                                                     factors);
                   },
               .reference =
                   [=](absl::Span<std::uint8_t* const> memory) {
                     FrozenAdamStep(dtype, memory[0], memory[1], m(memory), v(memory), count, factors);
                   }});
      }
    }
  }
}

}  // namespace tutti::kernels

#endif  // TESTS_KERNELS_ARITHMETIC_CASES_H_
