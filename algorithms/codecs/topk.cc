// Only the elements of largest magnitude of each block are sent, exactly; the others decode to zero. The code of a
// block of n elements has the values of the density · n largest (rounded, at least one), then their indices within the
// block, ascending. Without error feedback small elements are never sent. (Aji, Heafield: "Sparse communication for
// distributed gradient descent", 2017; Stich et al., https://arxiv.org/abs/1809.07599.)
//
// The code of a block with a NaN or Inf starts with NaN, to which the whole block decodes.
#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "algorithms/codecs/block_layout.h"
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
        absl::StrCat(kName, ": density is ", OptionText(options, "density"), ", must be above 0 and at most 1"));
  }

  static std::uint32_t Fingerprint(const CodecOptions& options) {
    return static_cast<std::uint32_t>(kernels::Mix(std::bit_cast<std::uint64_t>(options.density)));
  }

  // What is sent is exact, so that the largest of the other elements has the largest error.
  static double LargestError(absl::Span<const float> block, const CodecOptions& options) {
    const std::int64_t kept = Kept(static_cast<std::int64_t>(block.size()), options);
    if (kept == static_cast<std::int64_t>(block.size())) return 0;
    std::vector<float> magnitudes;
    magnitudes.reserve(block.size());
    for (const float value : block) magnitudes.push_back(std::abs(value));
    std::nth_element(magnitudes.begin(), magnitudes.begin() + kept, magnitudes.end(), std::greater<>());
    return magnitudes[static_cast<std::size_t>(kept)];
  }

  static kernels::Coder CoderOf(const CodecOptions& /*options*/) { return kernels::Coder::kTopK; }

  static std::int64_t Kept(std::int64_t elements, const CodecOptions& options) {
    return std::max<std::int64_t>(1, std::llround(options.density * static_cast<double>(elements)));
  }

  static std::int64_t CodeBytes(std::int64_t elements, const CodecOptions& options) {
    return Kept(elements, options) * (4 + kernels::IndexBytes(elements));
  }

  Numbers Encode(absl::Span<const float> values, const std::optional<kernels::RandomStream>& /*random*/,
                 std::uint8_t* code) {
    switch (kernels::IndexBytes(static_cast<std::int64_t>(values.size()))) {
      case 2:
        EncodeWithIndices<std::uint16_t>(values, code);
        break;
      case 4:
        EncodeWithIndices<std::uint32_t>(values, code);
        break;
      default:
        EncodeWithIndices<std::uint64_t>(values, code);
    }
    return {};
  }

  // Returns false unless the indices ascend and lie within the block, or the code starts with NaN.
  bool Decode(const Numbers& /*numbers*/, const std::uint8_t* code, bool accumulate, absl::Span<float> values) const {
    switch (kernels::IndexBytes(static_cast<std::int64_t>(values.size()))) {
      case 2:
        return DecodeWithIndices<std::uint16_t>(code, accumulate, values);
      case 4:
        return DecodeWithIndices<std::uint32_t>(code, accumulate, values);
      default:
        return DecodeWithIndices<std::uint64_t>(code, accumulate, values);
    }
  }

 private:
  template <typename Index>
  void EncodeWithIndices(absl::Span<const float> values, std::uint8_t* code) {
    const std::int64_t kept = Kept(static_cast<std::int64_t>(values.size()), options_);
    std::uint8_t* const indices = code + 4 * kept;
    if (kernels::FindLargestFew(values, kept, few_)) {
      if (!few_.finite) return Poison<Index>(kept, code);
      std::memcpy(code, few_.values, static_cast<std::size_t>(4 * kept));
      for (std::int64_t k = 0; k < kept; ++k) Put(static_cast<Index>(few_.indices[k]), k, indices);
      return;
    }
    kernels::Largest largest = kernels::FindLargest(values, kept);
    if (!largest.finite) return Poison<Index>(kept, code);
    for (std::int64_t i = 0, k = 0; k < kept; ++i) {
      const std::uint32_t magnitude = kernels::MagnitudeOf(values[i]);
      if (magnitude < largest.magnitude || (magnitude == largest.magnitude && largest.ties-- <= 0)) continue;
      Put(values[i], k, code);
      Put(static_cast<Index>(i), k++, indices);
    }
  }
  template <typename Index>
  static void Poison(std::int64_t kept, std::uint8_t* code) {
    for (std::int64_t k = 0; k < kept; ++k) {
      Put(std::numeric_limits<float>::quiet_NaN(), k, code);
      Put(static_cast<Index>(k), k, code + 4 * kept);
    }
  }
  template <typename Index>
  bool DecodeWithIndices(const std::uint8_t* code, bool accumulate, absl::Span<float> values) const {
    const std::int64_t kept = Kept(static_cast<std::int64_t>(values.size()), options_);
    float value = At<float>(code, 0);
    if (std::isnan(value)) {
      std::fill(values.begin(), values.end(), value);
      return true;
    }
    if (!accumulate) std::memset(values.data(), 0, values.size() * sizeof(float));
    const std::uint8_t* const indices = code + 4 * kept;
    std::uint64_t least = 0;
    for (std::int64_t k = 0; k < kept; ++k) {
      const std::uint64_t index = At<Index>(indices, k);
      if (index < least || index >= values.size()) return false;
      if (k > 0) value = At<float>(code, k);
      values[index] += value;
      least = index + 1;
    }
    return true;
  }
  // At and Put read and write number k of numbers that lie one after the other, unaligned.
  template <typename T>
  static T At(const std::uint8_t* numbers, std::int64_t k) {
    T number;
    std::memcpy(&number, numbers + k * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
    return number;
  }
  template <typename T>
  static void Put(T number, std::int64_t k, std::uint8_t* numbers) {
    std::memcpy(numbers + k * static_cast<std::int64_t>(sizeof(T)), &number, sizeof(T));
  }

  const CodecOptions options_;
  kernels::LargestFew few_;
};

using Message = codecs::BlockMessage<TopK>;

}  // namespace
}  // namespace tutti

TUTTI_CODEC(topk) = {
    .name = tutti::TopK::kName,
    .summary =
        "The `density` of elements that are largest in each block of `block`, exactly, with their indices; the "
        "others become zero. Needs error feedback",
    .error_bound = "the largest |x| of the block that is not sent",
    .largest_error = tutti::TopK::LargestError,
    .options = tutti::TopK::kOptions,
    .defaults = {.block = 65536, .density = 0.01},
    .validate = tutti::Message::Validate,
    .encoded_bytes = tutti::Message::EncodedBytes,
    .encode = tutti::Message::Encode,
    .decode = tutti::Message::Decode,
    .layout = tutti::codecs::LayoutOf<tutti::TopK>,
};
