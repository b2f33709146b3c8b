// Cases of the device kernels that encode, decode, and do the middle of the two-shot exchange, for every codec with its
// options; tests/kernels/arithmetic_cases.h has the others.
#ifndef TESTS_CODECS_MESSAGE_CASES_H_
#define TESTS_CODECS_MESSAGE_CASES_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/combine.h"
#include "kernels/reduce.h"
#include "tests/codecs/inputs.h"
#include "tests/kernels/device_case.h"
#include "tutti/codec.h"

namespace tutti {

using kernels::BufferOf;
using kernels::CaseBuffer;
using kernels::CaseVisitor;
using kernels::DeviceCase;
using kernels::DeviceKernels;
using kernels::Stream;
using Memory = absl::Span<std::uint8_t* const>;

// Every codec that has device kernels, with every combination of these options that it accepts, and with its defaults.
inline std::vector<CodecChoice> ChoicesOnDevices() {
  std::vector<CodecChoice> choices;
  for (const Codec* codec : AllCodecs()) {
    if (codec->layout == nullptr) continue;
    choices.push_back({codec, codec->defaults});
    for (const std::int64_t block : {0, 4, 16, 256, 2048}) {
      for (const Rounding rounding : {Rounding::kNearest, Rounding::kStochastic}) {
        for (const bool rotation : {false, true}) {
          for (const double density : {1.0, 0.02, 0.3}) {
            const CodecOptions options{
                .block = block, .rounding = rounding, .seed = 77, .rotation = rotation, .density = density};
            CodecOptions unseeded = options;
            unseeded.seed = 0;
            const CodecChoice choice = {codec, codec->validate(options).ok() ? options : unseeded};
            if (!codec->validate(choice.options).ok()) continue;
            if (std::find(choices.begin(), choices.end(), choice) == choices.end()) choices.push_back(choice);
          }
        }
      }
    }
  }
  return choices;
}

// Values of `input`; where `input` has no number, values with one that is not finite.
struct MessageInput {
  Input input;
  float bad = 0;  // in the middle of the values, unless 0
};
inline constexpr MessageInput kMessageInputs[] = {{Input::kZeros},
                                                  {Input::kConstant},
                                                  {Input::kUniform},
                                                  {Input::kPositive},
                                                  {Input::kManyScales},
                                                  {Input::kSparse},
                                                  {Input::kSubnormal},
                                                  {Input::kHuge},
                                                  {Input::kLargest},
                                                  {Input::kUniform, std::numeric_limits<float>::quiet_NaN()},
                                                  {Input::kSparse, -std::numeric_limits<float>::infinity()}};

inline std::vector<float> ValuesOf(const MessageInput& input, std::int64_t count, std::uint64_t seed = 1) {
  std::vector<float> values = MakeValues(input.input, count, seed);
  if (input.bad != 0 && count > 0) values[static_cast<std::size_t>(count / 2)] = input.bad;
  return values;
}

inline float* FloatsAt(std::uint8_t* memory, std::int64_t offset) { return reinterpret_cast<float*>(memory) + offset; }

// A buffer for a message, which begins `offset` bytes behind the beginning.
inline CaseBuffer MessageBuffer(const CodecChoice& choice, std::int64_t count, std::int64_t offset) {
  const std::int64_t length = choice.codec->encoded_bytes(count, choice.options);
  CaseBuffer buffer = BufferOf(DType::kU8, length, offset);
  buffer.decode = [=](const std::vector<std::uint8_t>& bytes) {
    std::vector<float> values(static_cast<std::size_t>(count));
    const absl::Span<const std::uint8_t> message(bytes.data() + offset, static_cast<std::size_t>(length));
    // Nothing is decoded from bytes that are no message; zeros are no NaN.
    return choice.codec->decode(message, choice.options, false, absl::MakeSpan(values)).ok() ? values
                                                                                             : std::vector<float>();
  };
  return buffer;
}

// The codec and the kernels of the CPU, on the memory of a case.
class OnCpu {
 public:
  OnCpu(const CodecChoice& choice, std::int64_t count) : choice_(choice), count_(count) {}

  void Encode(const float* values, std::uint64_t draw, std::uint8_t* message) const {
    choice_.codec->encode({values, static_cast<std::size_t>(count_)}, choice_.options, draw, MessageAt(message));
  }
  void Decode(const std::uint8_t* message, bool accumulate, float* values) const {
    const absl::Span<const std::uint8_t> bytes(message, MessageAt(nullptr).size());
    const absl::Status status =
        choice_.codec->decode(bytes, choice_.options, accumulate, {values, static_cast<std::size_t>(count_)});
    EXPECT_TRUE(status.ok()) << status;
  }
  // message ← Q(values + residual), residual ← what that loses, as two_shot.h lets the plan compute it.
  void EncodeWithFeedback(std::vector<float> values, std::uint64_t draw, std::uint8_t* message, float* residual) const {
    void* const corrected = values.data();
    const void* const addends[] = {values.data(), residual};
    kernels::Reduce(DType::kF32, ReduceOp::kSum, 1, {&corrected, 1}, addends, count_, kernels::Stores::kCached);
    Encode(values.data(), draw, message);
    Decode(message, false, residual);
    constexpr Coefficient kRemainder[] = {{1, 1}, {-1, 1}};
    kernels::Combine(DType::kF32, residual, addends, kRemainder, count_, kernels::Results::kFinite);
  }

 private:
  absl::Span<std::uint8_t> MessageAt(std::uint8_t* message) const {
    return {message, static_cast<std::size_t>(choice_.codec->encoded_bytes(count_, choice_.options))};
  }

  const CodecChoice& choice_;
  const std::int64_t count_;
};

// Encodes and decodes messages of `counts`, all at once. The first message begins at an aligned address, each of the
// others one byte, and its values one element, further behind one.
inline DeviceCase RoundTripCase(const CodecChoice& choice, const MessageInput& input,
                                const std::vector<std::int64_t>& counts, bool residual) {
  DeviceCase the_case;
  the_case.name = absl::StrCat(ToString(choice), " of ", Name(input.input), " with ", input.bad, ", residual ",
                               residual, ", counts up to ", counts.back());
  // Of each message: the values, the message, the residual, what is decoded, and what the decoded is added to.
  for (std::size_t k = 0; k < counts.size(); ++k) {
    const auto offset = static_cast<std::int64_t>(k);
    the_case.buffers.push_back(BufferOf(ValuesOf(input, counts[k], k + 1), offset));
    the_case.buffers.push_back(MessageBuffer(choice, counts[k], offset));
    the_case.buffers.push_back(BufferOf(MakeValues(Input::kSparse, counts[k], k + 9), offset));
    the_case.buffers.push_back(BufferOf(DType::kF32, counts[k], offset));
    the_case.buffers.push_back(BufferOf(MakeValues(Input::kUniform, counts[k], k + 5), offset));
  }
  the_case.buffers.push_back(BufferOf(DType::kU32, 1));
  std::fill_n(the_case.buffers.back().bytes.begin(), 4, std::uint8_t{0});
  the_case.run = [=](const DeviceKernels& kernels, Stream stream, Memory memory) {
    std::vector<kernels::EncodeJob> encode;
    std::vector<kernels::DecodeJob> decode;
    for (std::size_t k = 0; k < counts.size(); ++k) {
      const auto offset = static_cast<std::int64_t>(k);
      const Memory its = memory.subspan(5 * k, 5);
      const kernels::MessageLayout layout = choice.codec->layout(counts[k], choice.options);
      encode.push_back({layout, FloatsAt(its[0], offset), DType::kF32, its[1] + k, 3 + k,
                        residual ? FloatsAt(its[2], offset) : nullptr});
      decode.push_back({layout, its[1] + k, FloatsAt(its[3], offset), DType::kF32, false});
      decode.push_back({layout, its[1] + k, FloatsAt(its[4], offset), DType::kF32, true});
    }
    if (absl::Status status = kernels.encode(stream, encode); !status.ok()) return status;
    return kernels.decode(stream, decode, reinterpret_cast<std::uint32_t*>(memory.back()));
  };
  the_case.reference = [=](Memory memory) {
    for (std::size_t k = 0; k < counts.size(); ++k) {
      const auto offset = static_cast<std::int64_t>(k);
      const Memory its = memory.subspan(5 * k, 5);
      const OnCpu cpu(choice, counts[k]);
      const float* const values = FloatsAt(its[0], offset);
      if (residual) {
        cpu.EncodeWithFeedback({values, values + counts[k]}, 3 + k, its[1] + k, FloatsAt(its[2], offset));
      } else {
        cpu.Encode(values, 3 + k, its[1] + k);
      }
      cpu.Decode(its[1] + k, false, FloatsAt(its[3], offset));
      cpu.Decode(its[1] + k, true, FloatsAt(its[4], offset));
    }
  };
  return the_case;
}

// Encodes and decodes a message of a 16-bit type, which the CPU widens before and rounds after.
inline DeviceCase NarrowCase(const CodecChoice& choice, const MessageInput& input, DType type, std::int64_t count,
                             std::int64_t offset) {
  DeviceCase the_case;
  the_case.name = absl::StrCat(ToString(choice), " of ", Name(type), " ", Name(input.input), " with ", input.bad,
                               ", count ", count);
  const std::vector<float> values = ValuesOf(input, count);
  CaseBuffer narrow = BufferOf(type, count, offset);
  kernels::Convert(type, narrow.bytes.data() + 2 * offset, DType::kF32, values.data(), count, kernels::Stores::kCached);
  the_case.buffers = {narrow, MessageBuffer(choice, count, 0), BufferOf(type, count, offset)};
  the_case.run = [=](const DeviceKernels& kernels, Stream stream, Memory memory) {
    const kernels::MessageLayout layout = choice.codec->layout(count, choice.options);
    const kernels::EncodeJob encode = {layout, memory[0] + 2 * offset, type, memory[1], 5, nullptr};
    const kernels::DecodeJob decode = {layout, memory[1], memory[2] + 2 * offset, type, false};
    if (absl::Status status = kernels.encode(stream, {&encode, 1}); !status.ok()) return status;
    return kernels.decode(stream, {&decode, 1}, nullptr);
  };
  the_case.reference = [=](Memory memory) {
    const OnCpu cpu(choice, count);
    std::vector<float> wide(static_cast<std::size_t>(count));
    kernels::Convert(DType::kF32, wide.data(), type, memory[0] + 2 * offset, count, kernels::Stores::kCached);
    cpu.Encode(wide.data(), 5, memory[1]);
    cpu.Decode(memory[1], false, wide.data());
    kernels::Convert(type, memory[2] + 2 * offset, DType::kF32, wide.data(), count, kernels::Stores::kCached);
  };
  return the_case;
}

// The middle of the two-shot exchange with `versions` versions of a chunk.
inline DeviceCase RecodeCase(const CodecChoice& choice, const MessageInput& input, std::int64_t count,
                             std::size_t versions, bool average, bool residual) {
  DeviceCase the_case;
  the_case.name =
      absl::StrCat("middle of ", ToString(choice), " of ", Name(input.input), " with ", input.bad, ", count ", count,
                   ", versions ", versions, ", average ", average, ", residual ", residual);
  const OnCpu cpu(choice, count);
  for (std::size_t v = 0; v < versions; ++v) {
    the_case.buffers.push_back(MessageBuffer(choice, count, 0));
    cpu.Encode(ValuesOf(input, count, v + 1).data(), v, the_case.buffers.back().bytes.data());
  }
  the_case.buffers.push_back(BufferOf(DType::kF32, count));                    // the sum
  the_case.buffers.push_back(BufferOf(MakeValues(Input::kSparse, count, 9)));  // the residual
  the_case.buffers.push_back(MessageBuffer(choice, count, 0));
  const std::int32_t divisor = average ? static_cast<std::int32_t>(versions) : 1;
  the_case.run = [=](const DeviceKernels& kernels, Stream stream, Memory memory) {
    const std::vector<const std::uint8_t*> list(memory.begin(), memory.begin() + static_cast<std::ptrdiff_t>(versions));
    float* const its_residual = residual ? FloatsAt(memory[versions + 1], 0) : nullptr;
    return kernels.recode(
        stream,
        {choice.codec->layout(count, choice.options), nullptr, DType::kF32, memory[versions + 2], 11, its_residual},
        FloatsAt(memory[versions], 0), list, divisor, nullptr);
  };
  the_case.reference = [=](Memory memory) {
    const OnCpu on_cpu(choice, count);
    float* const sum = FloatsAt(memory[versions], 0);
    for (std::size_t v = 0; v < versions; ++v) on_cpu.Decode(memory[v], v > 0, sum);
    if (average) kernels::Divide(DType::kF32, sum, sum, divisor, count);
    if (residual) {
      on_cpu.EncodeWithFeedback({sum, sum + count}, 11, memory[versions + 2], FloatsAt(memory[versions + 1], 0));
    } else {
      on_cpu.Encode(sum, 11, memory[versions + 2]);
    }
  };
  return the_case;
}

// Cases of every codec with all its options. `large` adds messages of many blocks.
inline void VisitMessageCases(const CodecChoice& choice, bool large, const CaseVisitor& visit) {
  const std::int64_t block = std::clamp<std::int64_t>(choice.options.block, 16, 4096);
  std::vector<std::int64_t> counts = {0, 1, 2, 7, 8, 9, 17, block - 1, block, block + 1, 3 * block + 5};
  const std::int64_t many = block < 256 ? 3001 : 70001;
  if (large) counts.push_back(many);
  for (const MessageInput& input : kMessageInputs) {
    for (const bool residual : {false, true}) visit(RoundTripCase(choice, input, counts, residual));
  }
  for (const MessageInput& input : {kMessageInputs[2], kMessageInputs[4], kMessageInputs[9]}) {
    for (const DType type : {DType::kF16, DType::kBF16}) {
      visit(NarrowCase(choice, input, type, 3 * block + 5, 0));
      visit(NarrowCase(choice, input, type, block + 1, 1));
    }
  }
  for (const MessageInput& input : {kMessageInputs[2], kMessageInputs[4], kMessageInputs[5], kMessageInputs[9]}) {
    for (const std::size_t versions : {1, 2, 3, 8}) {
      for (const bool residual : {false, true}) {
        visit(RecodeCase(choice, input, 3 * block + 5, versions, versions != 2, residual));
      }
    }
    visit(RecodeCase(choice, input, 5, 3, true, true));
    visit(RecodeCase(choice, input, 0, 3, true, false));
    if (large) visit(RecodeCase(choice, input, many, 4, true, true));
  }
}

}  // namespace tutti

#endif  // TESTS_CODECS_MESSAGE_CASES_H_
