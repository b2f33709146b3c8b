// The largest elements of each block, exactly; the others decode to zero. Of `density` · n elements (rounded, at least
// one) the code holds all values, then all indices within the block, ascending. Without error feedback small elements
// are never sent. (Aji, Heafield: "Sparse communication for distributed gradient descent", 2017; Stich et al.,
// https://arxiv.org/abs/1809.07599.)
//
// A block with a NaN or Inf sends NaN as its first value, which stands for all of the block.
#include <cmath>

#include "algorithms/codecs/block_message.h"
#include "kernels/select_largest.h"

namespace tutti {
namespace {

class TopK : public codecs::BlockScheme {
 public:
  static constexpr absl::string_view kName = "topk";
  static constexpr absl::string_view kOptions = "block, density";
  static constexpr std::uint8_t kId = 5;
  using Numbers = std::array<float, 0>;

  explicit TopK(const CodecOptions& options) : BlockScheme(options), options_(options) {}

  static absl::Status Validate(const CodecOptions& options) {
    if (options.density > 0 && options.density <= 1) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(kName, ": density is ", options.density, ", must be above 0 and at most 1"));
  }

  static std::uint32_t Fingerprint(const CodecOptions& options) {
    return static_cast<std::uint32_t>(kernels::Mix(std::bit_cast<std::uint64_t>(options.density)));
  }

  static std::int64_t CodeBytes(std::int64_t elements, const CodecOptions& options) {
    return Kept(elements, options) * (4 + IndexBytes(elements));
  }

  // Indices of one block ascend and lie in it.
  static bool IsValid(const std::uint8_t* code, std::int64_t elements, const CodecOptions& options) {
    const std::int64_t kept = Kept(elements, options);
    const std::uint8_t* indices = code + 4 * kept;
    std::int64_t last = -1;
    for (std::int64_t k = 0; k < kept; ++k) {
      const std::int64_t index = IndexAt(indices, k, IndexBytes(elements));
      if (index <= last || index >= elements) return false;
      last = index;
    }
    return true;
  }

  Numbers Encode(absl::Span<const float> values, const std::optional<kernels::RandomStream>& /*random*/,
                 std::uint8_t* code) const {
    const auto elements = static_cast<std::int64_t>(values.size());
    const std::int64_t kept = Kept(elements, options_);
    const std::int64_t index_bytes = IndexBytes(elements);
    std::uint8_t* indices = code + 4 * kept;
    kernels::Largest largest = kernels::FindLargest(values, kept);
    if (!largest.finite) {
      for (std::int64_t k = 0; k < kept; ++k) {
        Put(std::numeric_limits<float>::quiet_NaN(), k, 4, code);
        Put(k, k, index_bytes, indices);
      }
      return {};
    }
    for (std::int64_t i = 0, k = 0; k < kept; ++i) {
      const std::uint32_t magnitude = kernels::MagnitudeOf(values[i]);
      if (magnitude < largest.magnitude || (magnitude == largest.magnitude && largest.ties-- <= 0)) continue;
      Put(values[i], k, 4, code);
      Put(i, k++, index_bytes, indices);
    }
    return {};
  }

  void Decode(const Numbers& /*numbers*/, const std::uint8_t* code, bool accumulate, absl::Span<float> values) const {
    const auto elements = static_cast<std::int64_t>(values.size());
    const std::int64_t kept = Kept(elements, options_);
    const std::uint8_t* indices = code + 4 * kept;
    float value;
    std::memcpy(&value, code, sizeof(value));
    if (std::isnan(value)) return std::fill(values.begin(), values.end(), value);
    if (!accumulate) std::fill(values.begin(), values.end(), 0.0f);
    for (std::int64_t k = 0; k < kept; ++k) {
      std::memcpy(&value, code + 4 * k, sizeof(value));
      values[IndexAt(indices, k, IndexBytes(elements))] += value;
    }
  }

 private:
  static std::int64_t Kept(std::int64_t elements, const CodecOptions& options) {
    return std::max<std::int64_t>(1, std::llround(options.density * static_cast<double>(elements)));
  }
  static std::int64_t IndexBytes(std::int64_t elements) {
    return elements <= std::int64_t{1} << 16 ? 2 : elements <= std::int64_t{1} << 32 ? 4 : 8;
  }
  static std::int64_t IndexAt(const std::uint8_t* indices, std::int64_t k, std::int64_t bytes) {
    std::int64_t index = 0;
    std::memcpy(&index, indices + k * bytes, static_cast<std::size_t>(bytes));
    return index;
  }
  // The k-th of numbers that take the lowest `bytes` bytes of a T each.
  template <typename T>
  static void Put(T number, std::int64_t k, std::int64_t bytes, std::uint8_t* numbers) {
    std::memcpy(numbers + k * bytes, &number, static_cast<std::size_t>(bytes));
  }

  const CodecOptions options_;
};

using Message = codecs::BlockMessage<TopK>;

}  // namespace
}  // namespace tutti

TUTTI_CODEC(topk);
constinit const tutti::Codec tutti_codec_topk = {
    .name = tutti::TopK::kName,
    .summary =
        "The `density` of elements that are largest in each block of `block`, exactly, with their indices; the "
        "others become zero. Needs error feedback",
    .error_bound = "the smallest |x| that is sent of the block",
    .options = tutti::TopK::kOptions,
    .defaults = {.block = 65536, .density = 0.01},
    .validate = tutti::Message::Validate,
    .encoded_bytes = tutti::Message::EncodedBytes,
    .encode = tutti::Message::Encode,
    .decode = tutti::Message::Decode,
};
