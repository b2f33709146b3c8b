// One byte per element: a block with the largest magnitude m sends m/127, and every element as a multiple of it.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tutti/codecs/block_message.h"
#include "tutti/codecs/finite_range.h"

namespace tutti {
namespace {

struct Toy : codecs::BlockScheme {
  static constexpr absl::string_view kName = "toy";
  static constexpr absl::string_view kOptions = "block";
  static constexpr std::uint8_t kId = 255;
  using Numbers = std::array<float, 1>;  // the step
  using BlockScheme::BlockScheme;

  // Half a step, and what fp32 rounds: below the smallest normal number the step by half of the smallest fp32, 2^-150,
  // and 127 steps by 127 times as much. The largest numbers may become infinite, because the step may be rounded up.
  static double LargestError(absl::Span<const float> block, const CodecOptions& /*options*/) {
    const kernels::FiniteRange range = kernels::FindRange(block);
    const float largest = std::max(-range.min, range.max);
    if (std::isinf(largest / 127 * 127)) return std::numeric_limits<double>::infinity();
    return 0.501 * largest / 127 + 0x1p-143;
  }

  static std::int64_t CodeBytes(std::int64_t elements, const CodecOptions& /*options*/) { return elements; }

  static Numbers Encode(absl::Span<const float> values, const std::optional<kernels::RandomStream>& /*random*/,
                        std::uint8_t* code) {
    const kernels::FiniteRange range = kernels::FindRange(values);
    if (!range.finite) return codecs::PoisonedBlock<Numbers>(static_cast<std::int64_t>(values.size()), code);
    const float step = std::max(-range.min, range.max) / 127;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float level = step > 0 ? values[i] / step : 0;  // beyond 127 where a tiny step was rounded down
      code[i] = static_cast<std::uint8_t>(std::lrint(std::clamp(level, -127.0F, 127.0F)));
    }
    return {step};
  }

  static void Decode(const Numbers& numbers, const std::uint8_t* code, bool accumulate, absl::Span<float> values) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float value = static_cast<float>(static_cast<std::int8_t>(code[i])) * numbers[0];
      values[i] = accumulate ? values[i] + value : value;
    }
  }
};

using Message = codecs::BlockMessage<Toy>;

}  // namespace
}  // namespace tutti

TUTTI_CODEC(toy) = {
    .name = tutti::Toy::kName,
    .summary = "8 bits per element, multiples of 1/127 of the largest of its block",
    .error_bound = "0.501 · max|x| / 127 of the block, and 2^-143; 3.4e38 may become infinite",
    .largest_error = tutti::Toy::LargestError,
    .options = tutti::Toy::kOptions,
    .defaults = {.block = 1024},
    .validate = tutti::Message::Validate,
    .encoded_bytes = tutti::Message::EncodedBytes,
    .encode = tutti::Message::Encode,
    .decode = tutti::Message::Decode,
};
