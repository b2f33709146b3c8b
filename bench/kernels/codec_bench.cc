// The speed of encode and decode of every codec, in GB/s of fp32 elements.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/codecs/inputs.h"
#include "tutti/codec.h"

namespace tutti {
namespace {

enum class Direction { kEncode, kDecode, kAccumulate };

void RunCodec(benchmark::State& state, const CodecChoice& choice, Direction direction) {
  const std::int64_t count = state.range(0);
  const auto& [codec, options] = choice;
  std::vector<float> values = MakeValues(Input::kBellShaped, count);
  std::vector<std::uint8_t> message(codec->encoded_bytes(count, options));
  codec->encode(values, options, 0, absl::MakeSpan(message));
  for (auto _ : state) {
    if (direction == Direction::kEncode) {
      codec->encode(values, options, 0, absl::MakeSpan(message));
    } else if (!codec->decode(message, options, direction == Direction::kAccumulate, absl::MakeSpan(values)).ok()) {
      state.SkipWithError("decode failed");
    }
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * count * 4);
}

void Register(const CodecChoice& choice) {
  for (const auto& [name, direction] :
       {std::pair("Encode", Direction::kEncode), std::pair("Decode", Direction::kDecode),
        std::pair("Accumulate", Direction::kAccumulate)}) {
    benchmark::RegisterBenchmark(absl::StrCat(name, "/", ToString(choice)).c_str(), RunCodec, choice, direction)
        ->Arg(16 << 10)
        ->Arg(4 << 20);
  }
}

// Registers every codec with its defaults, and with each option that costs time.
const bool kRegistered = [] {
  for (const Codec* codec : AllCodecs()) {
    Register({codec, codec->defaults});
    CodecOptions stochastic = codec->defaults;
    stochastic.rounding = Rounding::kStochastic;
    CodecOptions rotated = codec->defaults;
    rotated.rotation = true;
    for (const CodecOptions& options : {stochastic, rotated}) {
      if (codec->validate(options).ok()) Register({codec, options});
    }
  }
  return true;
}();

}  // namespace
}  // namespace tutti
