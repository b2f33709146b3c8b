// BlockMessage: most of a codec, for those that encode each block of elements by itself. The message is
//
//   header (wire_header.h) · the numbers (fp32) of each block · the code of each block
//
// A message that would not be smaller than its elements is sent raw: header · elements, and is exact. What is
// particular to a codec is its scheme, which says what one block becomes.
#ifndef TUTTI_CODECS_BLOCK_MESSAGE_H_
#define TUTTI_CODECS_BLOCK_MESSAGE_H_

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "tutti/codec.h"
#include "tutti/codecs/random.h"
#include "tutti/codecs/wire_header.h"

namespace tutti::codecs {

static_assert(std::endian::native == std::endian::little, "numbers are copied to the wire as they are");

// What a scheme derives from. A scheme says how one block becomes numbers and a code; one object of it is made for each
// message, in the thread that encodes or decodes. A scheme redefines those of the members below that it needs, and has
// besides
//   static constexpr absl::string_view kName, kOptions;  // as in Codec
//   static constexpr std::uint8_t kId;  // the codec's number in the header; from 128 on outside of Tutti's tree
//   using Numbers = std::array<float, N>;
//   static std::int64_t CodeBytes(std::int64_t elements, const CodecOptions& options);  // of a block, of 1 or more
// and then, for each block,
//   Numbers Encode(absl::Span<const float> values, const std::optional<kernels::RandomStream>& random,
//                  std::uint8_t* code);
//   void Decode(const Numbers& numbers, const std::uint8_t* code, bool accumulate, absl::Span<float> values);
// where `values` are a block (never empty), `code` has CodeBytes(values.size()) bytes, unaligned, and `random` is set
// for stochastic rounding. A block with a NaN or Inf must decode to NaN. Decode must accept any code. In a scheme with
// invalid codes, Decode returns bool instead: false when it meets an invalid one. Decode checks and uses one loaded
// copy of each part, because the code may lie in a peer's memory and change between two loads. Neither of the two
// allocates. A scheme for which a call for each block takes too long has in place of these two, for all blocks of a
// message (header included) at once,
//   static void EncodeBlocks(absl::Span<const float> values, const CodecOptions& options, std::uint64_t draw,
//                            std::uint8_t* message);
//   static void DecodeBlocks(const std::uint8_t* message, const CodecOptions& options, bool accumulate,
//                            absl::Span<float> values);
struct BlockScheme {
  explicit BlockScheme(const CodecOptions& /*options*/) {}
  static constexpr std::int64_t kSmallestBlock = 4;
  // The error of options that are valid one by one, but not together.
  static absl::Status Validate(const CodecOptions& /*options*/) { return absl::OkStatus(); }
  // A number that tells apart those options, beside block, on which the decoder depends.
  static std::uint32_t Fingerprint(const CodecOptions& /*options*/) { return 0; }
};

// The numbers of a block that decodes to NaN, for schemes that compute every value from the first number. Zeroes the
// code, because every byte of a message must be defined.
template <class Numbers>
Numbers PoisonedBlock(std::int64_t code_bytes, std::uint8_t* code) {
  std::fill_n(code, code_bytes, std::uint8_t{0});
  Numbers numbers = {};
  numbers[0] = std::numeric_limits<float>::quiet_NaN();
  return numbers;
}

// The functions of a codec's record, for a scheme. Their contracts are those of Codec (codec.h): thread-safe, and
// without allocations.
template <class Scheme>
class BlockMessage {
 public:
  static absl::Status Validate(const CodecOptions& options) {
    constexpr std::int64_t kLargestBlock = std::int64_t{1} << 31;
    if (absl::Status taken = CheckTaken(Scheme::kName, Scheme::kOptions, options); !taken.ok()) return taken;
    const std::int64_t block = options.block;
    const bool power_of_two = block > 0 && std::has_single_bit(static_cast<std::uint64_t>(block));
    if (block == 0 || (power_of_two && block >= Scheme::kSmallestBlock && block <= kLargestBlock)) {
      return Scheme::Validate(options);
    }
    return absl::InvalidArgumentError(absl::StrCat(Scheme::kName, ": block is ", block,
                                                   ", must be a power of two from ", Scheme::kSmallestBlock,
                                                   " to 2^31, or 0 for the whole message"));
  }

  static std::int64_t EncodedBytes(std::int64_t count, const CodecOptions& options) {
    return IsRaw(count, options) ? kHeaderBytes + 4 * count : CodedBytes(count, options);
  }

  static void Encode(absl::Span<const float> src, const CodecOptions& options, std::uint64_t draw,
                     absl::Span<std::uint8_t> dst) {
    const auto count = static_cast<std::int64_t>(src.size());
    WriteHeader(HeaderOf(count, options), dst.data());
    if (IsRaw(count, options)) {
      std::copy_n(reinterpret_cast<const std::uint8_t*>(src.data()), 4 * count, dst.data() + kHeaderBytes);
    } else if constexpr (kWhole) {
      Scheme::EncodeBlocks(src, options, draw, dst.data());
    } else {
      EncodeOneByOne(src, options, draw, dst.data() + kHeaderBytes);
    }
  }

  static absl::Status Decode(absl::Span<const std::uint8_t> src, const CodecOptions& options, bool accumulate,
                             absl::Span<float> dst) {
    const auto count = static_cast<std::int64_t>(dst.size());
    absl::Status status = CheckHeader(Scheme::kName, HeaderOf(count, options), EncodedBytes(count, options), src);
    if (!status.ok()) return status;
    if (IsRaw(count, options)) {
      DecodeRaw(src.data() + kHeaderBytes, accumulate, dst);
      return absl::OkStatus();
    }
    if constexpr (kWhole) {
      Scheme::DecodeBlocks(src.data(), options, accumulate, dst);
      return absl::OkStatus();
    } else {
      return DecodeOneByOne(src.data() + kHeaderBytes, options, accumulate, dst);
    }
  }

  // The parts of the message for `count` elements: elements of every block but the last, which may have fewer; the
  // number of blocks; bytes of the numbers of one block; whether the message is raw; its header.
  static std::int64_t BlockElements(std::int64_t count, const CodecOptions& options) {
    return options.block == 0 ? count : options.block;
  }
  static std::int64_t Blocks(std::int64_t count, const CodecOptions& options) {
    if (options.block == 0) return count == 0 ? 0 : 1;
    return count / options.block + (count % options.block == 0 ? 0 : 1);
  }
  static constexpr std::int64_t kNumbersBytes = 4 * std::tuple_size_v<typename Scheme::Numbers>;
  static bool IsRaw(std::int64_t count, const CodecOptions& options) { return CodedBytes(count, options) >= 4 * count; }
  static WireHeader HeaderOf(std::int64_t count, const CodecOptions& options) {
    return {Scheme::kId, IsRaw(count, options) ? Form::kRaw : Form::kBlocks, count, options.block,
            Scheme::Fingerprint(options)};
  }

 private:
  static constexpr bool kWhole = requires { Scheme::EncodeBlocks; };

  static void EncodeOneByOne(absl::Span<const float> src, const CodecOptions& options, std::uint64_t draw,
                             std::uint8_t* numbers_at) {
    const auto count = static_cast<std::int64_t>(src.size());
    Scheme scheme(options);
    std::uint8_t* code = numbers_at + Blocks(count, options) * kNumbersBytes;
    const std::int64_t block = BlockElements(count, options);
    for (std::int64_t begin = 0; begin < count; begin += block) {
      std::optional<kernels::RandomStream> random;
      if (options.rounding == Rounding::kStochastic) {
        random = kernels::MakeRandomStream(options.seed, draw, static_cast<std::uint64_t>(begin / block));
      }
      [[maybe_unused]] const auto numbers = scheme.Encode(src.subspan(begin, block), random, code);
      if constexpr (kNumbersBytes > 0) std::memcpy(numbers_at, numbers.data(), kNumbersBytes);
      numbers_at += kNumbersBytes;
      code += Scheme::CodeBytes(block, options);
    }
  }

  static absl::Status DecodeOneByOne(const std::uint8_t* numbers_at, const CodecOptions& options, bool accumulate,
                                     absl::Span<float> dst) {
    const auto count = static_cast<std::int64_t>(dst.size());
    const std::uint8_t* code = numbers_at + Blocks(count, options) * kNumbersBytes;
    Scheme scheme(options);
    const std::int64_t block = BlockElements(count, options);
    for (std::int64_t begin = 0; begin < count; begin += block) {
      typename Scheme::Numbers numbers = {};
      if constexpr (kNumbersBytes > 0) std::memcpy(numbers.data(), numbers_at, kNumbersBytes);
      const absl::Span<float> values = dst.subspan(begin, block);
      if constexpr (std::is_void_v<decltype(scheme.Decode(numbers, code, accumulate, values))>) {
        scheme.Decode(numbers, code, accumulate, values);
      } else if (!scheme.Decode(numbers, code, accumulate, values)) {
        return absl::DataLossError(absl::StrCat(Scheme::kName, " message: the block at element ", begin, " of ", count,
                                                " has a code that no encoder writes"));
      }
      numbers_at += kNumbersBytes;
      code += Scheme::CodeBytes(block, options);
    }
    return absl::OkStatus();
  }

  static std::int64_t CodedBytes(std::int64_t count, const CodecOptions& options) {
    std::int64_t bytes = kHeaderBytes + Blocks(count, options) * kNumbersBytes;
    if (count == 0) return bytes;
    const std::int64_t block = BlockElements(count, options);
    bytes += count / block * Scheme::CodeBytes(block, options);
    return count % block == 0 ? bytes : bytes + Scheme::CodeBytes(count % block, options);
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

#endif  // TUTTI_CODECS_BLOCK_MESSAGE_H_
