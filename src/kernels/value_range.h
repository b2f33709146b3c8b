// The values that a message is encoded from or decoded to: f32, or a 16-bit type, which is widened on the way in and
// rounded once on the way out, so that it needs no copy in f32.
#ifndef TUTTI_KERNELS_VALUE_RANGE_H_
#define TUTTI_KERNELS_VALUE_RANGE_H_

#include <cstdint>

#include "kernels/floating_element.h"
#include "kernels/octet.h"

namespace tutti::kernels {

// Loads an octet into the lanes in which it is computed.
template <class Format>
TUTTI_HOST_DEVICE void LoadLanes(const void* from, int count, typename Format::Lane (&lanes)[kOctet]) {
  typename Format::Element elements[kOctet];
  LoadElements(from, count, elements);
  TUTTI_UNROLL
  for (int i = 0; i < kOctet; ++i) lanes[i] = Format::Load(elements[i]);
}

template <class Format>
TUTTI_HOST_DEVICE void ToElements(const typename Format::Lane (&lanes)[kOctet],
                                  typename Format::Element (&elements)[kOctet]) {
  TUTTI_UNROLL
  for (int i = 0; i < kOctet; ++i) elements[i] = Format::Store(lanes[i]);
}

template <class Format>
TUTTI_HOST_DEVICE void StoreLanes(const typename Format::Lane (&lanes)[kOctet], int count, void* to) {
  typename Format::Element elements[kOctet];
  ToElements<Format>(lanes, elements);
  StoreElements(elements, count, to);
}

// What becomes of decoded values: they replace what is in memory, are added to it, or are taken off it (the remainder
// is what a codec lost; a remainder that is no finite number becomes 0).
enum class Output : std::uint8_t { kSet, kAdd, kRemainder };

TUTTI_HOST_DEVICE inline float OutputOf(Output output, float present, float value) {
  if (output == Output::kSet) return value;
  if (output == Output::kAdd) return present + value;
  const float remainder = present - value;
  return IsFinite(remainder) ? remainder : 0.0f;
}

// Values in memory that are read. All values that an encoder is given have LoadOctet and ReloadOctet.
class ValueSource {
 public:
  ValueSource() = default;
  // `type` is f32, f16 or bf16.
  TUTTI_HOST_DEVICE ValueSource(const void* data, DType type) : data_(data), type_(type) {}
  TUTTI_HOST_DEVICE explicit ValueSource(const float* data) : data_(data) {}

  // The values from element `begin` on.
  TUTTI_HOST_DEVICE ValueSource From(std::int64_t begin) const { return {AddressOf(begin), type_}; }
  TUTTI_HOST_DEVICE void LoadOctet(std::int64_t begin, int count, float (&octet)[kOctet]) const {
    if (type_ == DType::kF32) return LoadElements(AddressOf(begin), count, octet);
    if (type_ == DType::kF16) return LoadLanes<Float16Element>(AddressOf(begin), count, octet);
    LoadLanes<BFloat16Element>(AddressOf(begin), count, octet);
  }
  // The octet that LoadOctet gives, for an encoder that passes over its values twice.
  TUTTI_HOST_DEVICE void ReloadOctet(std::int64_t begin, int count, float (&octet)[kOctet]) const {
    LoadOctet(begin, count, octet);
  }
  TUTTI_HOST_DEVICE float At(std::int64_t index) const {
    if (type_ == DType::kF32) return static_cast<const float*>(data_)[index];
    const std::uint16_t bits = static_cast<const std::uint16_t*>(data_)[index];
    return type_ == DType::kF16 ? FloatFromFloat16(bits) : FloatFromBFloat16(bits);
  }

 private:
  TUTTI_HOST_DEVICE const void* AddressOf(std::int64_t index) const {
    return static_cast<const char*>(data_) + index * (type_ == DType::kF32 ? 4 : 2);
  }

  const void* data_ = nullptr;
  DType type_ = DType::kF32;
};

// Values in memory that decoded ones are put into. Sums and remainders of a 16-bit type are rounded each time.
class ValueSink {
 public:
  ValueSink() = default;
  // `type` is f32, f16 or bf16.
  TUTTI_HOST_DEVICE ValueSink(void* data, DType type) : data_(data), type_(type) {}
  TUTTI_HOST_DEVICE explicit ValueSink(float* data) : data_(data) {}

  // The values from element `begin` on.
  TUTTI_HOST_DEVICE ValueSink From(std::int64_t begin) const { return {AddressOf(begin), type_}; }
  TUTTI_HOST_DEVICE void PutOctet(Output output, const float (&values)[kOctet], std::int64_t begin, int count) const {
    if (output == Output::kSet) return StoreOctet(values, begin, count);
    float present[kOctet];
    ValueSource(data_, type_).LoadOctet(begin, count, present);
    TUTTI_UNROLL
    for (int i = 0; i < kOctet; ++i) present[i] = OutputOf(output, present[i], values[i]);
    StoreOctet(present, begin, count);
  }
  TUTTI_HOST_DEVICE void Put(Output output, float value, std::int64_t index) const {
    if (output != Output::kSet) value = OutputOf(output, ValueSource(data_, type_).At(index), value);
    if (type_ == DType::kF32) {
      static_cast<float*>(data_)[index] = value;
    } else {
      static_cast<std::uint16_t*>(data_)[index] =
          type_ == DType::kF16 ? Float16FromFloat(value) : BFloat16FromFloat(value);
    }
  }

 private:
  TUTTI_HOST_DEVICE void* AddressOf(std::int64_t index) const {
    return static_cast<char*>(data_) + index * (type_ == DType::kF32 ? 4 : 2);
  }
  TUTTI_HOST_DEVICE void StoreOctet(const float (&values)[kOctet], std::int64_t begin, int count) const {
    if (type_ == DType::kF32) return StoreElements(values, count, AddressOf(begin));
    if (type_ == DType::kF16) return StoreLanes<Float16Element>(values, count, AddressOf(begin));
    StoreLanes<BFloat16Element>(values, count, AddressOf(begin));
  }

  void* data_ = nullptr;
  DType type_ = DType::kF32;
};

}  // namespace tutti::kernels

#endif  // TUTTI_KERNELS_VALUE_RANGE_H_
