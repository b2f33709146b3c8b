// How fast one core moves memory when there is next to nothing to compute, which bounds codecs and memcpy: it reads,
// updates in place and writes, and does what codecs do: reads values while it writes a message (encode), or reads a
// message while it writes values (decode) or adds to them. Memory is fetched ahead by several distances, of which the
// best counts. bench/kernels/codecs.py runs these cases in the same rounds as those of codec_bench.cc.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "bench/kernels/pages.h"
#include "bench/kernels/traffic.h"
#include "kernels/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/kernels/traffic_bench.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "kernels/read_ahead.h"

HWY_BEFORE_NAMESPACE();
namespace tutti::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using kernels::Access;
using kernels::ReadAhead;

constexpr std::size_t kTurn = 128;  // floats, 8 lines of the cache
constexpr std::size_t kTurnBytes = kTurn * sizeof(float);
constexpr hn::CappedTag<float, 16> kTag;

template <Access kAccess>
ReadAhead<kAccess> Ahead(const float* data, std::size_t count, std::size_t distance) {
  return {data, distance == 0 ? 0 : count * sizeof(float), distance};
}

void Read(const float* values, std::size_t count, std::size_t distance, float* sums) {
  const std::size_t lanes = hn::Lanes(kTag);
  const auto ahead = Ahead<Access::kRead>(values, count, distance);
  auto sum0 = hn::Zero(kTag), sum1 = sum0, sum2 = sum0, sum3 = sum0;  // additions do not wait for one another
  for (std::size_t i = 0; i < count; i += kTurn) {
    ahead.template At<kTurnBytes>(values + i);
    for (std::size_t k = i; k < i + kTurn; k += 4 * lanes) {
      sum0 = hn::Add(sum0, hn::LoadU(kTag, values + k));
      sum1 = hn::Add(sum1, hn::LoadU(kTag, values + k + lanes));
      sum2 = hn::Add(sum2, hn::LoadU(kTag, values + k + 2 * lanes));
      sum3 = hn::Add(sum3, hn::LoadU(kTag, values + k + 3 * lanes));
    }
  }
  hn::StoreU(hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3)), kTag, sums);
}

void Update(float* values, std::size_t count, std::size_t distance) {
  const std::size_t lanes = hn::Lanes(kTag);
  const auto ahead = Ahead<Access::kUpdate>(values, count, distance);
  for (std::size_t i = 0; i < count; i += kTurn) {
    ahead.template At<kTurnBytes>(values + i);
    for (std::size_t k = i; k < i + kTurn; k += lanes) {
      hn::StoreU(hn::Add(hn::LoadU(kTag, values + k), hn::Set(kTag, 1.0f)), kTag, values + k);
    }
  }
}

void Stream(float* values, std::size_t count) {
  for (std::size_t i = 0; i < count; i += hn::Lanes(kTag)) hn::Stream(hn::Set(kTag, 1.0f), kTag, values + i);
  hwy::FlushStream();
}

template <std::size_t kRatio>
void Encode(const float* values, std::size_t count, std::size_t distance, float* message) {
  const std::size_t lanes = hn::Lanes(kTag);
  const auto ahead = Ahead<Access::kRead>(values, count, distance);
  for (std::size_t i = 0; i < count; i += kTurn) {
    ahead.template At<kTurnBytes>(values + i);
    for (std::size_t k = i; k < i + kTurn; k += kRatio * lanes) {
      auto sum = hn::LoadU(kTag, values + k);
      for (std::size_t r = 1; r < kRatio; ++r) sum = hn::Add(sum, hn::LoadU(kTag, values + k + r * lanes));
      hn::StoreU(sum, kTag, message + k / kRatio);
    }
  }
}

template <std::size_t kRatio, bool kAccumulate>
void Decode(const float* message, std::size_t count, std::size_t distance, float* values) {
  const std::size_t lanes = hn::Lanes(kTag);
  const auto ahead = Ahead<Access::kUpdate>(values, count, distance);
  const auto ahead_of_message = Ahead<Access::kRead>(message, count / kRatio, distance);
  for (std::size_t i = 0; i < count; i += kTurn) {
    ahead.template At<kTurnBytes>(values + i);
    ahead_of_message.template At<kTurnBytes / kRatio>(message + i / kRatio);
    for (std::size_t k = i; k < i + kTurn; k += kRatio * lanes) {
      const auto decoded = hn::LoadU(kTag, message + k / kRatio);
      for (std::size_t r = 0; r < kRatio; ++r) {
        float* const to = values + k + r * lanes;
        hn::StoreU(kAccumulate ? hn::Add(hn::LoadU(kTag, to), decoded) : decoded, kTag, to);
      }
    }
  }
}

template <std::size_t kRatio>
void MoveMessage(const Traffic& traffic, float* values, std::size_t count, float* message) {
  if (traffic.movement == Movement::kEncode) return Encode<kRatio>(values, count, traffic.distance, message);
  if (traffic.movement == Movement::kDecode) return Decode<kRatio, false>(message, count, traffic.distance, values);
  Decode<kRatio, true>(message, count, traffic.distance, values);
}

void MoveHere(const Traffic& traffic, float* values, std::size_t count, float* message) {
  if (traffic.movement == Movement::kRead) return Read(values, count, traffic.distance, message);
  if (traffic.movement == Movement::kUpdate) return Update(values, count, traffic.distance);
  if (traffic.movement == Movement::kStream) return Stream(values, count);
  if (traffic.ratio == 2) return MoveMessage<2>(traffic, values, count, message);
  if (traffic.ratio == 4) return MoveMessage<4>(traffic, values, count, message);
  MoveMessage<8>(traffic, values, count, message);
}

}  // namespace tutti::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti {
namespace {

HWY_EXPORT(MoveHere);

constexpr std::size_t kElements = 16 << 20;  // out of the cache, as in codec_bench.cc

void RunTraffic(benchmark::State& state, const Traffic& traffic) {
  static Pages<float> values(kElements), message(kElements / 2);  // pages exist from their first use on
  static const bool filled = [] {
    for (Pages<float>* pages : {&values, &message}) std::fill(pages->span().begin(), pages->span().end(), 1.0f);
    return true;
  }();
  if (!filled) return;
  for (auto _ : state) {
    HWY_DYNAMIC_DISPATCH(MoveHere)(traffic, values.span().data(), kElements, message.span().data());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(4 * kElements));
}

void Register(const std::string& name, Movement movement, std::size_t ratio) {
  for (const std::size_t distance : {0, 4096, 8192, 16384, 32768}) {
    if (movement == Movement::kStream && distance != 0) break;
    benchmark::RegisterBenchmark(absl::StrCat("Traffic/", name, "/", distance).c_str(), RunTraffic,
                                 Traffic{movement, ratio, distance})
        ->Arg(kElements);
  }
}

const bool kRegistered = [] {
  Register("read", Movement::kRead, 0);
  Register("update", Movement::kUpdate, 0);
  Register("stream", Movement::kStream, 0);
  for (const std::size_t ratio : {2, 4, 8}) {
    Register(absl::StrCat("Encode:", ratio), Movement::kEncode, ratio);
    Register(absl::StrCat("Decode:", ratio), Movement::kDecode, ratio);
    Register(absl::StrCat("Accumulate:", ratio), Movement::kAccumulate, ratio);
  }
  return true;
}();

}  // namespace
}  // namespace tutti
#endif  // HWY_ONCE
