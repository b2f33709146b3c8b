#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/types/span.h"
#include "bindings/cli/check/checks.h"
#include "tutti/codecs/random.h"
#include "tutti/codecs/wire_header.h"
#include "tutti/extension.h"

namespace tutti::cli {
namespace {

using Message = std::vector<std::uint8_t>;

constexpr std::int64_t kBehind = 512;  // bytes or elements behind what is written, which must stay as they are
constexpr std::uint8_t kUntouchedByte = 0xA7;
constexpr float kUntouched = 42;

std::uint32_t RandomWordOf(std::uint64_t seed, std::size_t i) {
  return kernels::RandomWord(kernels::MakeRandomStream(seed, 0, 0), static_cast<std::uint32_t>(i));
}

struct Input {
  absl::string_view name;
  float (*element)(std::size_t i);
};

float Uniform(std::size_t i) { return 2 * kernels::UnitFromWord(RandomWordOf(1, i)) - 1; }

constexpr Input kInputs[] = {
    {"zeros", [](std::size_t) { return 0.0F; }},
    {"equal values", [](std::size_t) { return 0.1F; }},
    {"values from -1 to 1", Uniform},
    {"values of many magnitudes",
     [](std::size_t i) { return std::ldexp(Uniform(i), static_cast<int>(RandomWordOf(2, i) % 40) - 26); }},
    {"few values that are not zero", [](std::size_t i) { return RandomWordOf(3, i) % 16 == 0 ? Uniform(i) : 0.0F; }},
};

std::vector<float> ValuesOf(const Input& input, std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = input.element(i);
  return values;
}

// The options of the codec that change what a message looks like, each with its default.
std::vector<CodecOptions> OptionsOf(const Codec& codec) {
  std::vector<CodecOptions> all = {codec.defaults};
  for (const std::int64_t block : {codec.defaults.block, std::int64_t{0}, std::int64_t{64}}) {
    for (const Rounding rounding : {Rounding::kNearest, Rounding::kStochastic}) {
      for (const bool rotation : {false, true}) {
        for (const double density : {codec.defaults.density, 0.25}) {
          CodecOptions options = codec.defaults;
          options.block = block;
          options.rounding = rounding;
          options.rotation = rotation;
          options.density = density;
          const bool is_new = std::find(all.begin(), all.end(), options) == all.end();
          if (is_new && codec.validate(options).ok()) all.push_back(options);
        }
      }
    }
  }
  return all;
}

// The checks of one codec with one set of options. Each returns what is wrong, or OK.
class CodecCheck {
 public:
  CodecCheck(const Codec& codec, const CodecOptions& options) : codec_(codec), options_(options) {}

  absl::Status CheckInput(const Input& input, std::int64_t count);
  absl::Status CheckNotFinite(std::int64_t count);
  absl::Status CheckWrongMessages(std::int64_t count);
  // The largest error of values from -1 to 1, as a part of the largest of them.
  double largest_error() const { return largest_error_; }

 private:
  std::int64_t BytesOf(std::int64_t count) const { return codec_.encoded_bytes(count, options_); }
  // Encodes into memory that begins at any address, and checks what lies behind.
  absl::StatusOr<Message> Encode(absl::Span<const float> values, std::size_t offset) const {
    const auto bytes = static_cast<std::size_t>(BytesOf(static_cast<std::int64_t>(values.size())));
    Message memory(offset + bytes + kBehind, kUntouchedByte);
    codec_.encode(values, options_, /*draw=*/7, absl::MakeSpan(memory).subspan(offset, bytes));
    if (std::any_of(memory.begin() + static_cast<std::ptrdiff_t>(offset + bytes), memory.end(),
                    [](std::uint8_t byte) { return byte != kUntouchedByte; })) {
      return absl::FailedPreconditionError(
          absl::StrCat("encode writes behind the ", bytes, " bytes that encoded_bytes returns"));
    }
    return Message(memory.begin() + static_cast<std::ptrdiff_t>(offset),
                   memory.begin() + static_cast<std::ptrdiff_t>(offset + bytes));
  }
  absl::StatusOr<std::vector<float>> Decode(const Message& message, std::int64_t count, bool accumulate) const {
    std::vector<float> values(static_cast<std::size_t>(count + kBehind), kUntouched);
    const absl::Status status =
        codec_.decode(message, options_, accumulate, absl::MakeSpan(values).first(static_cast<std::size_t>(count)));
    if (!status.ok() && !absl::IsDataLoss(status)) {
      return absl::FailedPreconditionError(absl::StrCat("decode returns ", status.ToString(), ", expected DataLoss"));
    }
    if (std::any_of(values.begin() + count, values.end(), [](float value) { return value != kUntouched; })) {
      return absl::FailedPreconditionError("decode writes behind its output");
    }
    if (!status.ok()) return status;
    values.resize(static_cast<std::size_t>(count));
    return values;
  }

  const Codec& codec_;
  const CodecOptions options_;
  double largest_error_ = 0;
};

absl::Status Wrong(absl::string_view what, std::size_t element, std::int64_t count, float got,
                   absl::string_view expected) {
  return absl::FailedPreconditionError(
      absl::StrFormat("%s: element %d of %d is %.9g, expected %s", what, element, count, got, expected));
}

absl::Status CodecCheck::CheckInput(const Input& input, std::int64_t count) {
  if (BytesOf(count) < 0) return absl::FailedPreconditionError(absl::StrCat("encoded_bytes is ", BytesOf(count)));
  const std::vector<float> values = ValuesOf(input, count);
  const absl::StatusOr<Message> message = Encode(values, 0);
  if (!message.ok()) return message.status();
  for (const std::size_t offset : {0, 1}) {
    const absl::StatusOr<Message> again = Encode(values, offset);
    if (!again.ok()) return again.status();
    const auto [byte, other] = std::mismatch(message->begin(), message->end(), again->begin());
    if (byte == message->end()) continue;
    return absl::FailedPreconditionError(absl::StrCat("encoding the same values again, ", offset,
                                                      " bytes further in memory, gives byte ", byte - message->begin(),
                                                      " as ", int{*other}, " instead of ", int{*byte}));
  }
  const absl::StatusOr<std::vector<float>> decoded = Decode(*message, count, /*accumulate=*/false);
  if (!decoded.ok()) return absl::FailedPreconditionError(absl::StrCat("decode: ", decoded.status().message()));
  const absl::StatusOr<std::vector<float>> sum = Decode(*message, count, /*accumulate=*/true);
  if (!sum.ok()) return absl::FailedPreconditionError(absl::StrCat("decode: ", sum.status().message()));
  float largest = 0;
  for (const float value : values) largest = std::max(largest, std::abs(value));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float value = (*decoded)[i];
    if (!std::isfinite(value)) return Wrong("decoded", i, count, value, absl::StrCat("about ", values[i]));
    if (largest == 0 && value != 0) return Wrong("decoded zeros", i, count, value, "0");
    if ((*sum)[i] != kUntouched + value) {
      return Wrong("accumulated", i, count, (*sum)[i], absl::StrFormat("%g + %.9g", kUntouched, value));
    }
    if (input.element == Uniform) {
      largest_error_ = std::max(largest_error_, static_cast<double>(std::abs(value - values[i]) / largest));
    }
  }
  return absl::OkStatus();
}

// A NaN or Inf must show in the decoded message.
absl::Status CodecCheck::CheckNotFinite(std::int64_t count) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    for (const std::int64_t at : {std::int64_t{0}, count / 2, count - 1}) {
      std::vector<float> values = ValuesOf(kInputs[2], count);
      values[static_cast<std::size_t>(at)] = bad;
      const absl::StatusOr<Message> message = Encode(values, 0);
      if (!message.ok()) return message.status();
      const absl::StatusOr<std::vector<float>> decoded = Decode(*message, count, /*accumulate=*/false);
      if (!decoded.ok()) return absl::FailedPreconditionError(absl::StrCat("decode: ", decoded.status().message()));
      const float shown = (*decoded)[static_cast<std::size_t>(at)];
      if (std::isfinite(shown)) {
        return Wrong(absl::StrCat("decoded from ", bad), static_cast<std::size_t>(at), count, shown, "NaN");
      }
    }
  }
  return absl::OkStatus();
}

// Messages of a wrong length are refused, and what is no message does no harm.
absl::Status CodecCheck::CheckWrongMessages(std::int64_t count) {
  const absl::StatusOr<Message> message = Encode(ValuesOf(kInputs[2], count), 0);
  if (!message.ok()) return message.status();
  std::vector<Message> lengths = {*message, *message, {}};
  lengths[0].push_back(0);
  if (!message->empty()) lengths[1].pop_back();
  for (const Message& wrong : lengths) {
    if (wrong.size() == message->size()) continue;
    const absl::StatusOr<std::vector<float>> decoded = Decode(wrong, count, /*accumulate=*/false);
    if (absl::IsDataLoss(decoded.status())) continue;
    return absl::FailedPreconditionError(absl::StrCat("decode accepts a message of ", wrong.size(), " bytes for ",
                                                      count, " elements, which need ", message->size(),
                                                      "; expected DataLoss"));
  }
  for (std::uint64_t round = 0; round < 100; ++round) {
    Message damaged = *message;
    for (std::size_t i = 0; i < damaged.size(); ++i) {
      if (round % 2 == 0 || RandomWordOf(round, i) % 64 == 0) {
        damaged[i] = static_cast<std::uint8_t>(RandomWordOf(round + 1000, i));
      }
    }
    const absl::StatusOr<std::vector<float>> decoded = Decode(damaged, count, /*accumulate=*/round % 3 == 0);
    if (!decoded.ok() && !absl::IsDataLoss(decoded.status())) return decoded.status();
  }
  return absl::OkStatus();
}

// The number of a codec in the header of its messages (codecs::WireHeader); nullopt where they have no such header.
std::optional<int> NumberOf(const Codec& codec) {
  if (codec.linear.has_value()) return std::nullopt;
  const float value = 1;
  const std::int64_t bytes = codec.encoded_bytes(1, codec.defaults);
  if (bytes < codecs::kHeaderBytes) return std::nullopt;
  Message message(static_cast<std::size_t>(bytes + kBehind));
  codec.encode(absl::MakeConstSpan(&value, 1), codec.defaults, /*draw=*/0,
               absl::MakeSpan(message).first(static_cast<std::size_t>(bytes)));
  const bool has_header = absl::string_view(reinterpret_cast<const char*>(message.data()), 4) == "TUTC";
  return has_header ? std::optional<int>(message[5]) : std::nullopt;
}

// Codecs tell each other's messages apart by their numbers.
absl::Status CheckNumber(const Codec& codec) {
  constexpr int kFirstFromOutside = 128;
  const std::optional<int> number = NumberOf(codec);
  if (!number.has_value()) return absl::OkStatus();
  const auto wrong = [&](const std::string& why) {
    return absl::FailedPreconditionError(absl::StrCat("kId, its number in the header of a message, is ", *number, ", ",
                                                      why, "; a codec from outside of Tutti has one from ",
                                                      kFirstFromOutside, " to 255 that no other codec has"));
  };
  for (const Codec* const other : AllCodecs()) {
    if (other != &codec && NumberOf(*other) == number) return wrong(absl::StrCat("as that of codec ", other->name));
  }
  const std::vector<std::string> outside = absl::StrSplit(ExtensionNames(), ", ");
  if (*number < kFirstFromOutside && absl::c_linear_search(outside, absl::StrCat("codec ", codec.name))) {
    return wrong("which Tutti keeps for codecs of its own");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> CheckCodec(const Codec& codec) {
  if (absl::Status valid = codec.validate(codec.defaults); !valid.ok()) {
    return absl::FailedPreconditionError(absl::StrCat("its own defaults are refused: ", valid.message()));
  }
  if (absl::Status number = CheckNumber(codec); !number.ok()) return number;
  const std::vector<CodecOptions> all = OptionsOf(codec);
  double error = 0;
  int messages = 0;
  for (const CodecOptions& options : all) {
    CodecCheck check(codec, options);
    const auto in_case = [&](absl::string_view input, std::int64_t count, const absl::Status& status) {
      return absl::FailedPreconditionError(
          absl::StrCat(ToString({&codec, options}), ", ", count, " elements, ", input, ": ", status.message()));
    };
    for (const std::int64_t count : {0, 1, 2, 3, 31, 63, 64, 65, 1023, 1024, 1025, 10007}) {
      for (const Input& input : kInputs) {
        if (absl::Status status = check.CheckInput(input, count); !status.ok())
          return in_case(input.name, count, status);
        ++messages;
      }
      if (count == 0) continue;
      if (absl::Status status = check.CheckNotFinite(count); !status.ok())
        return in_case("one not finite", count, status);
      if (absl::Status status = check.CheckWrongMessages(count); !status.ok()) {
        return in_case("damaged messages", count, status);
      }
    }
    if (options == codec.defaults) error = check.largest_error();
  }
  constexpr std::int64_t kMany = 1'000'000;
  const auto bytes = static_cast<double>(codec.encoded_bytes(kMany, codec.defaults));
  return absl::StrFormat(
      "%d messages with %d sets of options are right; a million elements take %.4g %% of their bytes; the largest "
      "error "
      "of values from -1 to 1 is %.3g of the largest value (its record says: %s)",
      messages, all.size(), bytes / (4.0 * kMany) * 100, error, codec.error_bound);
}

}  // namespace tutti::cli
