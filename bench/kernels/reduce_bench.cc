// The speed of Reduce as the direct all-reduce of two ranks calls it: two sources, and the result written into both.
// GB/s count every byte read and written; memcpy (one read, one write) gives the limit.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "kernels/reduce.h"

namespace tutti::kernels {
namespace {

class AlignedFloats {
 public:
  explicit AlignedFloats(std::int64_t bytes)
      : data_(static_cast<float*>(std::aligned_alloc(4096, static_cast<std::size_t>((bytes + 4095) / 4096 * 4096)))) {
    std::memset(data_.get(), 0, static_cast<std::size_t>(bytes));
  }
  float* get() { return data_.get(); }

 private:
  struct Free {
    void operator()(float* data) const { std::free(data); }
  };
  std::unique_ptr<float, Free> data_;
};

// Arguments of the benchmark: bytes of each operand, number of sources. The first `num_dsts` sources are the
// destinations.
void RunReduce(benchmark::State& state, DType dtype, ReduceOp op, std::size_t num_dsts, Stores stores) {
  const std::int64_t bytes = state.range(0);
  const auto num_srcs = static_cast<std::size_t>(state.range(1));
  std::vector<AlignedFloats> buffers;
  std::vector<const void*> srcs;
  std::vector<void*> dsts;
  for (std::size_t s = 0; s < num_srcs; ++s) {
    buffers.emplace_back(bytes);
    srcs.push_back(buffers.back().get());
    if (s < num_dsts) dsts.push_back(buffers.back().get());
  }
  const std::int64_t count = bytes / SizeOf(dtype);
  for (auto _ : state) {
    Reduce(dtype, op, static_cast<std::int32_t>(num_srcs), dsts, srcs, count, stores);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * bytes * static_cast<std::int64_t>(num_srcs + num_dsts));
}

void Cached(benchmark::State& state, DType dtype, ReduceOp op) { RunReduce(state, dtype, op, 2, Stores::kCached); }
void Streaming(benchmark::State& state, DType dtype, ReduceOp op) {
  RunReduce(state, dtype, op, 2, Stores::kStreaming);
}

void Memcpy(benchmark::State& state) {
  const std::int64_t bytes = state.range(0);
  AlignedFloats src(bytes), dst(bytes);
  for (auto _ : state) {
    std::memcpy(dst.get(), src.get(), static_cast<std::size_t>(bytes));
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * bytes * 2);
}

void Sizes(benchmark::internal::Benchmark* benchmark) {
  for (std::int64_t bytes : {4, 1024, 65536, 524288, 33554432}) benchmark->Args({bytes, 2});
}

BENCHMARK_CAPTURE(Cached, f32_sum, DType::kF32, ReduceOp::kSum)->Apply(Sizes);
BENCHMARK_CAPTURE(Streaming, f32_sum, DType::kF32, ReduceOp::kSum)->Apply(Sizes);
BENCHMARK_CAPTURE(Cached, f32_avg, DType::kF32, ReduceOp::kAvg)->Apply(Sizes);
BENCHMARK(Memcpy)->Arg(1024)->Arg(65536)->Arg(524288)->Arg(33554432);
BENCHMARK_CAPTURE(Cached, f32_avg_of, DType::kF32, ReduceOp::kAvg)->ArgsProduct({{16384}, {3, 4, 8}});
BENCHMARK_CAPTURE(Cached, f32_sum_of, DType::kF32, ReduceOp::kSum)->ArgsProduct({{16384}, {3, 4, 8}});
BENCHMARK_CAPTURE(Cached, f32_max, DType::kF32, ReduceOp::kMax)->Args({65536, 2});
BENCHMARK_CAPTURE(Cached, bf16_sum, DType::kBF16, ReduceOp::kSum)->Args({65536, 2});
BENCHMARK_CAPTURE(Cached, bf16_max, DType::kBF16, ReduceOp::kMax)->Args({65536, 2});
BENCHMARK_CAPTURE(Cached, f16_sum, DType::kF16, ReduceOp::kSum)->Args({65536, 2});
BENCHMARK_CAPTURE(Cached, i32_sum, DType::kI32, ReduceOp::kSum)->Args({65536, 2});
BENCHMARK_CAPTURE(Cached, u8_bor, DType::kU8, ReduceOp::kBitwiseOr)->Args({65536, 2});
BENCHMARK_CAPTURE(Cached, bool_sum, DType::kBool, ReduceOp::kSum)->Args({65536, 2});
BENCHMARK_CAPTURE(Cached, c64_sum, DType::kC64, ReduceOp::kSum)->Args({65536, 2});
BENCHMARK_CAPTURE(Cached, c64_prod, DType::kC64, ReduceOp::kProd)->Args({65536, 2});
BENCHMARK_CAPTURE(Cached, f64_sum, DType::kF64, ReduceOp::kSum)->Args({65536, 2});
BENCHMARK_CAPTURE(Cached, i32_sum, DType::kI32, ReduceOp::kSum)->Args({65536, 2});

}  // namespace
}  // namespace tutti::kernels
