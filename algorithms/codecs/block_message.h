// The message of a codec that gives each block of elements two numbers and each element one byte:
//
//   header · (first, second) of each block, fp32 · a code for each element
//
// A message that would not be smaller than its elements is sent raw: header · elements, and is exact.
#ifndef TUTTI_ALGORITHMS_CODECS_BLOCK_MESSAGE_H_
#define TUTTI_ALGORITHMS_CODECS_BLOCK_MESSAGE_H_

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "algorithms/codecs/wire_header.h"
#include "kernels/finite_range.h"
#include "tutti/codec.h"

namespace tutti::codecs {

static_assert(std::endian::native == std::endian::little, "numbers are copied to the wire as they are");

struct BlockNumbers {
  float first;
  float second;
};

// A Scheme has kName, kId,
//   BlockNumbers Encode(const kernels::FiniteRange& range, absl::Span<const float> values, std::uint8_t* codes);
//   void Decode(BlockNumbers numbers, const std::uint8_t* codes, bool accumulate, absl::Span<float> values);
// Encode sees finite values only; numbers whose first is NaN must decode to NaN whatever the codes.
template <class Scheme>
class BlockMessage {
 public:
  static absl::Status Validate(const CodecOptions& options) {
    const std::int64_t block = options.block;
    if (block == 0 || (block >= 4 && std::has_single_bit(static_cast<std::uint64_t>(block)))) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(Scheme::kName, ": block is ", block,
                                                   ", must be a power of two from 4 on, or 0 for the whole message"));
  }

  static std::int64_t EncodedBytes(std::int64_t count, const CodecOptions& options) {
    return IsRaw(count, options) ? kHeaderBytes + 4 * count : CodedBytes(count, options);
  }

  static void Encode(absl::Span<const float> src, const CodecOptions& options, absl::Span<std::uint8_t> dst) {
    const auto count = static_cast<std::int64_t>(src.size());
    WriteHeader(HeaderOf(count, options), dst.data());
    if (IsRaw(count, options)) {
      std::copy_n(reinterpret_cast<const std::uint8_t*>(src.data()), 4 * count, dst.data() + kHeaderBytes);
      return;
    }
    std::uint8_t* numbers_at = dst.data() + kHeaderBytes;
    std::uint8_t* codes = numbers_at + Blocks(count, options) * kNumbersBytes;
    for (std::int64_t begin = 0; begin < count; begin += BlockElements(count, options)) {
      const absl::Span<const float> values = src.subspan(begin, BlockElements(count, options));
      const kernels::FiniteRange range = kernels::FindRange(values);
      BlockNumbers numbers = {std::numeric_limits<float>::quiet_NaN(), 0.0f};
      if (range.finite) {
        numbers = Scheme::Encode(range, values, codes + begin);
      } else {
        std::fill_n(codes + begin, values.size(), std::uint8_t{0});
      }
      std::memcpy(numbers_at, &numbers, kNumbersBytes);
      numbers_at += kNumbersBytes;
    }
  }

  static absl::Status Decode(absl::Span<const std::uint8_t> src, const CodecOptions& options, bool accumulate,
                             absl::Span<float> dst) {
    const auto count = static_cast<std::int64_t>(dst.size());
    absl::Status status = CheckHeader(Scheme::kName, HeaderOf(count, options), EncodedBytes(count, options), src);
    if (!status.ok()) return status;
    const std::uint8_t* numbers_at = src.data() + kHeaderBytes;
    if (IsRaw(count, options)) {
      DecodeRaw(numbers_at, accumulate, dst);
      return absl::OkStatus();
    }
    const std::uint8_t* codes = numbers_at + Blocks(count, options) * kNumbersBytes;
    for (std::int64_t begin = 0; begin < count; begin += BlockElements(count, options)) {
      BlockNumbers numbers;
      std::memcpy(&numbers, numbers_at, kNumbersBytes);
      numbers_at += kNumbersBytes;
      Scheme::Decode(numbers, codes + begin, accumulate, dst.subspan(begin, BlockElements(count, options)));
    }
    return absl::OkStatus();
  }

 private:
  static constexpr std::int64_t kNumbersBytes = sizeof(BlockNumbers);

  static std::int64_t BlockElements(std::int64_t count, const CodecOptions& options) {
    return options.block == 0 ? count : options.block;
  }
  static std::int64_t Blocks(std::int64_t count, const CodecOptions& options) {
    if (options.block == 0) return count == 0 ? 0 : 1;
    return count / options.block + (count % options.block == 0 ? 0 : 1);
  }
  static std::int64_t CodedBytes(std::int64_t count, const CodecOptions& options) {
    return kHeaderBytes + Blocks(count, options) * kNumbersBytes + count;
  }
  static bool IsRaw(std::int64_t count, const CodecOptions& options) { return CodedBytes(count, options) >= 4 * count; }
  static WireHeader HeaderOf(std::int64_t count, const CodecOptions& options) {
    return {Scheme::kId, IsRaw(count, options) ? Form::kRaw : Form::kBlocks, count, options.block};
  }
  static void DecodeRaw(const std::uint8_t* elements, bool accumulate, absl::Span<float> dst) {
    for (float& element : dst) {
      float value;
      std::memcpy(&value, elements, sizeof(value));
      elements += sizeof(value);
      element = accumulate ? element + value : value;
    }
  }
};

}  // namespace tutti::codecs

#endif  // TUTTI_ALGORITHMS_CODECS_BLOCK_MESSAGE_H_
