// The speed of encode and decode of every codec, in GB/s of fp32 elements, and of memcpy of the same elements: in cache
// (64 KB) and out of cache (64 MB). bench/kernels/codecs.py runs the cases in turn and writes docs/results/codecs.md.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "bench/kernels/pages.h"
#include "tests/codecs/inputs.h"
#include "tutti/codec.h"

namespace tutti {
namespace {

constexpr std::int64_t kElements[] = {16 << 10, 16 << 20};

// The first `count` of some bell-shaped values, which are made once, because that takes longer than to encode them.
absl::Span<const float> Values(std::int64_t count) {
  static const std::vector<float> values = MakeValues(Input::kBellShaped, *std::rbegin(kElements));
  return absl::MakeConstSpan(values).first(static_cast<std::size_t>(count));
}

enum class Direction { kEncode, kDecode, kAccumulate };

void RunCodec(benchmark::State& state, const CodecChoice& choice, Direction direction) {
  const std::int64_t count = state.range(0);
  const auto& [codec, options] = choice;
  Pages<float> elements(static_cast<std::size_t>(count));
  Pages<std::uint8_t> encoded(static_cast<std::size_t>(codec->encoded_bytes(count, options)));
  const absl::Span<float> values = elements.span();
  const absl::Span<std::uint8_t> message = encoded.span();
  std::copy_n(Values(count).begin(), count, values.begin());
  codec->encode(values, options, 0, message);
  for (auto _ : state) {
    if (direction == Direction::kEncode) {
      codec->encode(values, options, 0, message);
    } else if (!codec->decode(message, options, direction == Direction::kAccumulate, values).ok()) {
      state.SkipWithError("decode failed");
    }
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * count * 4);
}

void MemcpyOfElements(benchmark::State& state) {
  const std::int64_t count = state.range(0);
  Pages<float> src(static_cast<std::size_t>(count)), dst(static_cast<std::size_t>(count));
  std::copy_n(Values(count).begin(), count, src.span().begin());
  std::copy_n(Values(count).begin(), count, dst.span().begin());  // pages exist from their first use on
  for (auto _ : state) {
    std::memcpy(dst.span().data(), src.span().data(), static_cast<std::size_t>(4 * count));
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * 4 * count);
}

void Register(const CodecChoice& choice) {
  for (const auto& [name, direction] :
       {std::pair("Encode", Direction::kEncode), std::pair("Decode", Direction::kDecode),
        std::pair("Accumulate", Direction::kAccumulate)}) {
    auto* const benchmark =
        benchmark::RegisterBenchmark(absl::StrCat(name, "/", ToString(choice)).c_str(), RunCodec, choice, direction);
    for (const std::int64_t elements : kElements) benchmark->Arg(elements);
  }
}

// Registers memcpy, then every codec with its defaults, and with each option that costs time.
const bool kRegistered = [] {
  auto* const memcpy = benchmark::RegisterBenchmark("MemcpyOfElements", MemcpyOfElements);
  for (const std::int64_t elements : kElements) memcpy->Arg(elements);
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
