// Cases of the tables of device kernels, which run in two places: tests compare HostKernels with the CPU's kernels and
// codecs, and the program tests/gpu compares CudaKernels with HostKernels on a GPU.
#ifndef TESTS_KERNELS_DEVICE_CASE_H_
#define TESTS_KERNELS_DEVICE_CASE_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "kernels/device_kernels.h"
#include "tests/kernels/differences.h"
#include "tutti/dtype.h"

namespace tutti::kernels {

// What a buffer holds at first. Bytes behind the last element stay as they are, or the kernel has written too far.
struct CaseBuffer {
  DType dtype;  // two NaNs of a floating type are equal, whatever their bits
  std::vector<std::uint8_t> bytes;
  // For an encoded message: what the message in such bytes decodes to. A message in which a NaN is sent as it is has as
  // many encodings as NaN has bits, and arithmetic makes NaNs of other bits on other processors.
  std::function<std::vector<float>(const std::vector<std::uint8_t>& bytes)> decode;
};

struct DeviceCase {
  std::string name;
  std::vector<CaseBuffer> buffers;
  // Enqueues the kernels, on copies of the buffers in memory of the table's device.
  std::function<absl::Status(const DeviceKernels& kernels, Stream stream, absl::Span<std::uint8_t* const> memory)> run;
  // Computes the same with the kernels and codecs of the CPU.
  std::function<void(absl::Span<std::uint8_t* const> memory)> reference;
};

using CaseVisitor = std::function<void(const DeviceCase&)>;

inline constexpr std::int64_t kGuardBytes = 64;

inline CaseBuffer BufferOf(DType dtype, std::int64_t count, std::int64_t offset = 0) {
  return {dtype,
          std::vector<std::uint8_t>(static_cast<std::size_t>((offset + count) * SizeOf(dtype) + kGuardBytes), 0xAB),
          nullptr};
}

inline CaseBuffer BufferOf(const std::vector<float>& values, std::int64_t offset = 0) {
  CaseBuffer buffer = BufferOf(DType::kF32, static_cast<std::int64_t>(values.size()), offset);
  if (!values.empty()) std::memcpy(buffer.bytes.data() + offset * 4, values.data(), values.size() * sizeof(float));
  return buffer;
}

// Whether two buffers hold messages of values that are equal, some of them NaN.
inline bool DifferInNanOnly(const CaseBuffer& expected, const CaseBuffer& got) {
  if (!expected.decode) return false;
  const std::vector<float> one = expected.decode(expected.bytes);
  const std::vector<float> other = expected.decode(got.bytes);
  return std::any_of(one.begin(), one.end(), [](float value) { return std::isnan(value); }) &&
         Differences(other, one).empty();
}

// What differs between the elements of two buffers; empty where nothing does.
inline std::string Difference(const CaseBuffer& expected, const CaseBuffer& got) {
  const DType part = PartOf(expected.dtype);
  if (expected.bytes != got.bytes && DifferInNanOnly(expected, got)) return "";
  return Differences(part, got.bytes.data(), expected.bytes.data(),
                     static_cast<std::int64_t>(expected.bytes.size()) / SizeOf(part));
}

inline std::vector<std::uint8_t*> PointersTo(std::vector<CaseBuffer>& buffers) {
  std::vector<std::uint8_t*> pointers;
  pointers.reserve(buffers.size());
  for (CaseBuffer& buffer : buffers) pointers.push_back(buffer.bytes.data());
  return pointers;
}

// What is wrong when `kernels` of the host run the case; empty when nothing is.
inline std::string MistakeOnHost(const DeviceCase& the_case, const DeviceKernels& kernels) {
  std::vector<CaseBuffer> expected = the_case.buffers;
  std::vector<CaseBuffer> got = the_case.buffers;
  the_case.reference(PointersTo(expected));
  if (const absl::Status status = the_case.run(kernels, nullptr, PointersTo(got)); !status.ok()) {
    return absl::StrCat(the_case.name, ": ", status.message());
  }
  for (std::size_t i = 0; i < got.size(); ++i) {
    const std::string difference = Difference(expected[i], got[i]);
    if (!difference.empty()) return absl::StrCat(the_case.name, ", buffer ", i, ": ", difference);
  }
  return "";
}

}  // namespace tutti::kernels

#endif  // TESTS_KERNELS_DEVICE_CASE_H_
