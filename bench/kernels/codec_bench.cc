// Encode and decode of every codec; GB/s of fp32 elements.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <vector>

#include "tests/codecs/inputs.h"
#include "tutti/codec.h"

namespace tutti {
namespace {

enum class Direction { kEncode, kDecode, kAccumulate };

void RunCodec(benchmark::State& state, const Codec& codec, Direction direction) {
  const std::int64_t count = state.range(0);
  const CodecOptions options;
  std::vector<float> values = MakeValues(Input::kBellShaped, count);
  std::vector<std::uint8_t> message(codec.encoded_bytes(count, options));
  codec.encode(values, options, absl::MakeSpan(message));
  for (auto _ : state) {
    if (direction == Direction::kEncode) {
      codec.encode(values, options, absl::MakeSpan(message));
    } else if (!codec.decode(message, options, direction == Direction::kAccumulate, absl::MakeSpan(values)).ok()) {
      state.SkipWithError("decode failed");
    }
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * count * 4);
}

void Encode(benchmark::State& state, const char* codec) { RunCodec(state, **FindCodec(codec), Direction::kEncode); }
void Decode(benchmark::State& state, const char* codec) { RunCodec(state, **FindCodec(codec), Direction::kDecode); }
void Accumulate(benchmark::State& state, const char* codec) {
  RunCodec(state, **FindCodec(codec), Direction::kAccumulate);
}

BENCHMARK_CAPTURE(Encode, uint8_block, "uint8_block")->Arg(16 << 10)->Arg(4 << 20);
BENCHMARK_CAPTURE(Decode, uint8_block, "uint8_block")->Arg(16 << 10)->Arg(4 << 20);
BENCHMARK_CAPTURE(Accumulate, uint8_block, "uint8_block")->Arg(16 << 10)->Arg(4 << 20);
BENCHMARK_CAPTURE(Encode, minmax_uint8, "minmax_uint8")->Arg(16 << 10)->Arg(4 << 20);
BENCHMARK_CAPTURE(Decode, minmax_uint8, "minmax_uint8")->Arg(16 << 10)->Arg(4 << 20);

}  // namespace
}  // namespace tutti
