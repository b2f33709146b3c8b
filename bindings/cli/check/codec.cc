#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/types/span.h"
#include "bindings/cli/check/checks.h"
#include "bindings/cli/check/current_case.h"
#include "tutti/codecs/random.h"
#include "tutti/codecs/wire_header.h"
#include "tutti/extension.h"

namespace tutti::cli {
namespace {

using Message = std::vector<std::uint8_t>;

constexpr std::int64_t kBehind = 512;  // bytes or elements behind what is written, which must stay as they are
constexpr float kUntouched = 42;

std::uint32_t RandomWordOf(std::uint64_t seed, std::size_t i) {
  return kernels::RandomWord(kernels::MakeRandomStream(seed, 0, 0), static_cast<std::uint32_t>(i));
}

struct Input {
  absl::string_view name;
  float (*element)(std::size_t i);
};

float Uniform(std::size_t i) { return 2 * kernels::UnitFromWord(RandomWordOf(1, i)) - 1; }
constexpr Input kUniform = {"values from -1 to 1", Uniform};
constexpr Input kPositive = {"values from 1 to 3", [](std::size_t i) { return 2 + Uniform(i); }};

constexpr Input kInputs[] = {
    {"zeros", [](std::size_t) { return 0.0F; }},
    {"equal values", [](std::size_t) { return 0.1F; }},
    kUniform,
    kPositive,
    {"values of many magnitudes",
     [](std::size_t i) { return std::ldexp(Uniform(i), static_cast<int>(RandomWordOf(2, i) % 40) - 26); }},
    {"few values that are not zero", [](std::size_t i) { return RandomWordOf(3, i) % 16 == 0 ? Uniform(i) : 0.0F; }},
    {"values below the smallest normal number",
     [](std::size_t i) {
       return static_cast<float>(static_cast<int>(RandomWordOf(4, i) % 301) - 150) *
              std::numeric_limits<float>::denorm_min();
     }},
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

// Where a message lies in memory: its first byte, counted from an aligned one, and what every byte was before.
struct Place {
  std::size_t offset = 0;
  std::uint8_t fill = 0;
};

// The checks of one codec with one set of options. Each returns what is wrong, or OK.
class CodecCheck {
 public:
  CodecCheck(const Codec& codec, const CodecOptions& options) : codec_(codec), options_(options) {}

  absl::Status CheckInput(const Input& input, std::int64_t count);
  absl::Status CheckNotFinite(std::int64_t count);
  absl::Status CheckWrongMessages(std::int64_t count);
  absl::Status CheckAverage(const Input& input, std::int64_t count);
  // The largest error of an element, as a part of its bound.
  double largest_error() const { return largest_error_; }

 private:
  std::int64_t BytesOf(std::int64_t count) const { return codec_.encoded_bytes(count, options_); }
  // Elements that are encoded together, in a message of `count`.
  std::size_t BlockOf(std::size_t count) const {
    if (codec_.linear.has_value()) return 1;
    return options_.block == 0 ? count : static_cast<std::size_t>(options_.block);
  }
  bool KeepsZeros() const { return codec_.keeps_zeros && !options_.rotation; }
  // Encodes into memory at `place`, and checks what lies behind.
  absl::StatusOr<Message> Encode(absl::Span<const float> values, const Place& place = {}, std::uint64_t draw = 7) const;
  absl::StatusOr<std::vector<float>> Decode(const Message& message, std::int64_t count, bool accumulate) const;
  // Encoding the same values at any place gives `message`.
  absl::Status CheckPlaces(absl::Span<const float> values, const Message& message) const;
  // The bound of the error of each value.
  absl::StatusOr<std::vector<double>> BoundsOf(absl::Span<const float> values) const;
  absl::Status CheckErrors(absl::Span<const float> values, absl::Span<const double> bounds,
                           absl::Span<const float> decoded);
  // The message of a linear codec is its elements, rounded to nearest.
  absl::Status CheckLinear(absl::Span<const float> values, const Message& message) const;

  const Codec& codec_;
  const CodecOptions options_;
  double largest_error_ = 0;
};

absl::Status Wrong(absl::string_view what, std::size_t element, std::int64_t count, float got,
                   absl::string_view expected) {
  return absl::FailedPreconditionError(
      absl::StrFormat("%s: element %d of %d is %.9g, expected %s", what, element, count, got, expected));
}

absl::StatusOr<Message> CodecCheck::Encode(absl::Span<const float> values, const Place& place,
                                           std::uint64_t draw) const {
  const auto bytes = static_cast<std::size_t>(BytesOf(static_cast<std::int64_t>(values.size())));
  Message memory(place.offset + bytes + kBehind, place.fill);
  codec_.encode(values, options_, draw, absl::MakeSpan(memory).subspan(place.offset, bytes));
  const auto begin = memory.begin() + static_cast<std::ptrdiff_t>(place.offset);
  const auto end = begin + static_cast<std::ptrdiff_t>(bytes);
  if (std::any_of(end, memory.end(), [&](std::uint8_t byte) { return byte != place.fill; })) {
    return absl::FailedPreconditionError(
        absl::StrCat("encode writes behind the ", bytes, " bytes that encoded_bytes returns"));
  }
  return Message(begin, end);
}

absl::StatusOr<std::vector<float>> CodecCheck::Decode(const Message& message, std::int64_t count,
                                                      bool accumulate) const {
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

absl::Status CodecCheck::CheckPlaces(absl::Span<const float> values, const Message& message) const {
  for (const Place& place : {Place{0, 0x00}, Place{0, 0xFF}, Place{1, 0x00}}) {
    const absl::StatusOr<Message> again = Encode(values, place);
    if (!again.ok()) return again.status();
    const auto [byte, other] = std::mismatch(message.begin(), message.end(), again->begin());
    if (byte == message.end()) continue;
    return absl::FailedPreconditionError(absl::StrFormat(
        "encoding the same values again, %d bytes further in memory that was filled with 0x%02X, gives byte %d as %d "
        "instead of %d",
        place.offset, place.fill, byte - message.begin(), *other, *byte));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<double>> CodecCheck::BoundsOf(absl::Span<const float> values) const {
  std::vector<double> bounds;
  bounds.reserve(values.size());
  while (bounds.size() < values.size()) {
    const absl::Span<const float> block = values.subspan(bounds.size(), BlockOf(values.size()));
    const double bound = codec_.largest_error(block, options_);
    if (!(bound >= 0 && std::isfinite(bound))) {
      return absl::FailedPreconditionError(absl::StrFormat(
          "largest_error returns %g for the block of elements %d to %d; expected a finite number of at least 0", bound,
          bounds.size(), bounds.size() + block.size() - 1));
    }
    bounds.insert(bounds.end(), block.size(), bound);
  }
  return bounds;
}

absl::Status CodecCheck::CheckErrors(absl::Span<const float> values, absl::Span<const double> bounds,
                                     absl::Span<const float> decoded) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double error = std::abs(static_cast<double>(decoded[i]) - static_cast<double>(values[i]));
    if (error <= bounds[i]) {
      if (bounds[i] > 0) largest_error_ = std::max(largest_error_, error / bounds[i]);
      continue;
    }
    const std::size_t block = BlockOf(values.size());
    const std::size_t begin = i / block * block;
    return absl::FailedPreconditionError(absl::StrFormat(
        "element %d of %d, %.9g, is decoded as %.9g: the error is %.4g, above the %.4g that largest_error returns for "
        "its block, elements %d to %d",
        i, values.size(), values[i], decoded[i], error, bounds[i], begin, std::min(begin + block, values.size()) - 1));
  }
  return absl::OkStatus();
}

// Tutti's codec whose messages are elements of `dtype`; null where there is none.
const Codec* CastTo(DType dtype) {
  if (dtype == DType::kBF16) return *FindCodec("bf16");
  if (dtype == DType::kF16) return *FindCodec("fp16");
  return nullptr;
}

absl::Status CodecCheck::CheckLinear(absl::Span<const float> values, const Message& message) const {
  if (!codec_.linear.has_value()) return absl::OkStatus();
  const std::size_t bytes = values.size() * static_cast<std::size_t>(SizeOf(*codec_.linear));
  if (message.size() != bytes) {
    return absl::FailedPreconditionError(
        absl::StrFormat("encoded_bytes returns %d for %d elements; `linear` is %s, and elements of this type take %d",
                        message.size(), values.size(), Name(*codec_.linear), bytes));
  }
  const Codec* const cast = CastTo(*codec_.linear);
  if (cast == nullptr || options_.rounding != Rounding::kNearest) return absl::OkStatus();
  Message nearest(bytes);
  cast->encode(values, cast->defaults, /*draw=*/0, absl::MakeSpan(nearest));
  const auto [byte, expected] = std::mismatch(message.begin(), message.end(), nearest.begin());
  if (byte == message.end()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrFormat(
      "byte %d of the message is %d; `linear` is %s, to which elements are rounded to nearest, which gives %d",
      byte - message.begin(), *byte, Name(*codec_.linear), *expected));
}

absl::Status CodecCheck::CheckInput(const Input& input, std::int64_t count) {
  if (BytesOf(count) < 0) return absl::FailedPreconditionError(absl::StrCat("encoded_bytes is ", BytesOf(count)));
  const std::vector<float> values = ValuesOf(input, count);
  const absl::StatusOr<Message> message = Encode(values);
  if (!message.ok()) return message.status();
  if (absl::Status places = CheckPlaces(values, *message); !places.ok()) return places;
  const absl::StatusOr<std::vector<float>> decoded = Decode(*message, count, /*accumulate=*/false);
  if (!decoded.ok()) return absl::FailedPreconditionError(absl::StrCat("decode: ", decoded.status().message()));
  const absl::StatusOr<std::vector<float>> sum = Decode(*message, count, /*accumulate=*/true);
  if (!sum.ok()) return absl::FailedPreconditionError(absl::StrCat("decode: ", sum.status().message()));
  const bool zeros = std::all_of(values.begin(), values.end(), [](float value) { return value == 0; });
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float value = (*decoded)[i];
    if (!std::isfinite(value)) return Wrong("decoded", i, count, value, absl::StrCat("about ", values[i]));
    if (values[i] == 0 && value != 0 && (zeros || KeepsZeros())) return Wrong("decoded zeros", i, count, value, "0");
    if ((*sum)[i] != kUntouched + value) {
      return Wrong("accumulated", i, count, (*sum)[i], absl::StrFormat("%g + %.9g", kUntouched, value));
    }
  }
  const absl::StatusOr<std::vector<double>> bounds = BoundsOf(values);
  if (!bounds.ok()) return bounds.status();
  if (absl::Status errors = CheckErrors(values, *bounds, *decoded); !errors.ok()) return errors;
  return CheckLinear(values, *message);
}

// Rounding at random is right on average, for each element and for all of them. The draws are the same in every run.
//
// An error lies within plus or minus the largest one, so that the average error of d draws is above 7 / √d times the
// largest one with a probability of 2 · exp(-7² / 2) = 5e-11 at most, if the error to be expected is 0 (Hoeffding's
// inequality). The largest error that was seen counts where the bound is wide.
absl::Status CodecCheck::CheckAverage(const Input& input, std::int64_t count) {
  constexpr int kDraws = 1000;
  const std::vector<float> values = ValuesOf(input, count);
  absl::StatusOr<std::vector<double>> bounds = BoundsOf(values);
  if (!bounds.ok()) return bounds.status();
  std::vector<double> sums(values.size());
  double largest = 0;
  for (int draw = 0; draw < kDraws; ++draw) {
    const absl::StatusOr<Message> message = Encode(values, {}, static_cast<std::uint64_t>(draw));
    if (!message.ok()) return message.status();
    const absl::StatusOr<std::vector<float>> decoded = Decode(*message, count, /*accumulate=*/false);
    if (!decoded.ok()) return absl::FailedPreconditionError(absl::StrCat("decode: ", decoded.status().message()));
    if (absl::Status errors = CheckErrors(values, *bounds, *decoded); !errors.ok()) return errors;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double error = static_cast<double>((*decoded)[i]) - static_cast<double>(values[i]);
      sums[i] += error;
      largest = std::max(largest, std::abs(error));
    }
  }
  const double tolerance = 7 / std::sqrt(kDraws);
  double sum = 0;
  double squares = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double most = std::min((*bounds)[i], largest);
    sum += sums[i] / kDraws;
    squares += most * most;
    if (std::abs(sums[i]) / kDraws <= tolerance * most) continue;
    return absl::FailedPreconditionError(
        absl::StrFormat("rounding at random is wrong on average: element %d of %d, %.9g, is decoded as %.9g in the "
                        "average of %d draws, "
                        "expected a difference of at most %.3g",
                        i, count, values[i], values[i] + sums[i] / kDraws, kDraws, tolerance * most));
  }
  if (std::abs(sum) <= tolerance * std::sqrt(squares)) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrFormat(
      "rounding at random is wrong on average: the average error of %d elements in %d draws is %.3g, expected at most "
      "%.3g",
      count, kDraws, sum / static_cast<double>(count), tolerance * std::sqrt(squares) / static_cast<double>(count)));
}

// A NaN or Inf must show: its whole block decodes to NaN; its own element alone where the codec is linear, or the
// message holds the elements unchanged.
absl::Status CodecCheck::CheckNotFinite(std::int64_t count) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    for (const std::int64_t at : {std::int64_t{0}, count / 2, count - 1}) {
      std::vector<float> values = ValuesOf(kUniform, count);
      values[static_cast<std::size_t>(at)] = bad;
      const absl::StatusOr<Message> message = Encode(values);
      if (!message.ok()) return message.status();
      const absl::StatusOr<std::vector<float>> decoded = Decode(*message, count, /*accumulate=*/false);
      if (!decoded.ok()) return absl::FailedPreconditionError(absl::StrCat("decode: ", decoded.status().message()));
      const auto wrong = [&](std::size_t i) {
        return Wrong(absl::StrCat("decoded from ", bad, " in element ", at), i, count, (*decoded)[i], "NaN");
      };
      if (std::isfinite((*decoded)[static_cast<std::size_t>(at)])) return wrong(static_cast<std::size_t>(at));
      if (codec_.linear.has_value() || BytesOf(count) >= count * SizeOf(DType::kF32)) continue;
      const std::size_t block = BlockOf(values.size());
      const std::size_t begin = static_cast<std::size_t>(at) / block * block;
      for (std::size_t i = begin; i < std::min(begin + block, values.size()); ++i) {
        if (!std::isnan((*decoded)[i])) return wrong(i);
      }
    }
  }
  return absl::OkStatus();
}

// Messages of a wrong length are refused, and what is no message does no harm.
absl::Status CodecCheck::CheckWrongMessages(std::int64_t count) {
  const absl::StatusOr<Message> message = Encode(ValuesOf(kUniform, count));
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
    // Makes a check of one case; its error names the case, and so does a signal while the check runs.
    const auto in_case = [&](absl::string_view input, std::int64_t count, absl::FunctionRef<absl::Status()> made) {
      const std::string what = absl::StrCat(ToString({&codec, options}), ", ", count, " elements, ", input);
      SetCurrentCase(what);
      const absl::Status status = made();
      return status.ok() ? status : absl::FailedPreconditionError(absl::StrCat(what, ": ", status.message()));
    };
    for (const std::int64_t count : {0, 1, 2, 3, 31, 63, 64, 65, 1023, 1024, 1025, 10007}) {
      absl::Status status;
      for (const Input& input : kInputs) {
        status.Update(in_case(input.name, count, [&] { return check.CheckInput(input, count); }));
        if (!status.ok()) return status;
        ++messages;
      }
      if (count == 0) continue;
      status.Update(in_case("one not finite", count, [&] { return check.CheckNotFinite(count); }));
      if (!status.ok()) return status;
      status.Update(in_case("damaged messages", count, [&] { return check.CheckWrongMessages(count); }));
      if (!status.ok()) return status;
    }
    if (options.rounding == Rounding::kStochastic) {
      constexpr std::int64_t kCount = 500;
      for (const Input& input : {kUniform, kPositive}) {
        const absl::Status status = in_case(input.name, kCount, [&] { return check.CheckAverage(input, kCount); });
        if (!status.ok()) return status;
      }
    }
    if (options == codec.defaults) error = check.largest_error();
  }
  constexpr std::int64_t kMany = 1'000'000;
  const auto bytes = static_cast<double>(codec.encoded_bytes(kMany, codec.defaults));
  return absl::StrFormat(
      "%d messages with %d sets of options are right; a million elements take %.4g %% of their bytes; the largest "
      "error is %.4g %% of its bound, which is: %s",
      messages, all.size(), bytes / (4.0 * kMany) * 100, error * 100, codec.error_bound);
}

}  // namespace tutti::cli
