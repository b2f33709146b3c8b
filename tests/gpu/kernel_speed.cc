#include "tests/gpu/kernel_speed.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/codecs/inputs.h"
#include "tests/gpu/device_memory.h"
#include "tutti/codec.h"

namespace tutti::gpu {
namespace {

using kernels::DeviceKernels;
using kernels::EncodeJob;

constexpr int kRanks = 8;

// The mean of a few repetitions, after the first ones, which load the kernel.
class Measurement {
 public:
  Measurement(const DeviceKernels& kernels, cudaStream_t stream, std::int64_t count)
      : kernels_(kernels), stream_(stream), count_(count), timer_(stream) {
    for (int i = 0; i < kRanks + 1; ++i)
      buffers_.push_back(std::make_unique<DeviceMemory>(static_cast<std::size_t>(4 * count)));
    // Bell-shaped values, the same piece over and over.
    constexpr std::int64_t kPiece = 1 << 20;
    const std::vector<float> values = MakeValues(Input::kBellShaped, kPiece);
    for (const auto& buffer : buffers_) {
      for (std::int64_t begin = 0; begin < count; begin += kPiece) {
        const auto bytes = static_cast<std::size_t>(4 * std::min(kPiece, count - begin));
        Check(cudaMemcpy(buffer->floats() + begin, values.data(), bytes, cudaMemcpyHostToDevice), "values");
      }
    }
  }

  void All() {
    copy_rate_ = Line("cudaMemcpyAsync of f32", 8, [this] {
      Check(cudaMemcpyAsync(At(1), At(0), static_cast<std::size_t>(4 * count_), cudaMemcpyDeviceToDevice, stream_),
            "copy");
      return absl::OkStatus();
    });
    Arithmetic();
    for (const Codec* codec : AllCodecs()) {
      if (codec->layout != nullptr) Messages({codec, codec->defaults});
    }
    CodecOptions rotated = (*FindCodec("uint4_block"))->defaults;
    rotated.rotation = true;
    Messages({*FindCodec("uint4_block"), rotated});
    CodecOptions stochastic = (*FindCodec("uint8_block"))->defaults;
    stochastic.rounding = Rounding::kStochastic;
    Messages({*FindCodec("uint8_block"), stochastic});
  }

 private:
  void* At(int i) const { return buffers_[static_cast<std::size_t>(i)]->data(); }
  float* FloatsAt(int i) const { return buffers_[static_cast<std::size_t>(i)]->floats(); }

  // Prints a line and returns the rate in bytes per second; `bytes` are those of one element.
  double Line(const std::string& name, double bytes, const std::function<absl::Status()>& run) {
    constexpr int kWarmUp = 2;
    constexpr int kRuns = 10;
    double seconds = 0;
    for (int i = 0; i < kWarmUp + kRuns; ++i) {
      if (i == kWarmUp) timer_.Start();
      if (const absl::Status status = run(); !status.ok()) {
        std::printf("%-46s %s\n", name.c_str(), std::string(status.message()).c_str());
        return 0;
      }
    }
    seconds = timer_.StopSeconds() / kRuns;
    const double rate = bytes * static_cast<double>(count_) / seconds;
    std::printf("%-46s %8.1f us %8.0f GB/s %5.0f %% of the copy\n", name.c_str(), seconds * 1e6, rate * 1e-9,
                copy_rate_ > 0 ? 100 * rate / copy_rate_ : 100.0);
    std::fflush(stdout);
    return rate;
  }

  void Arithmetic() {
    Line("convert f32 to f32", 8,
         [this] { return kernels_.convert(stream_, DType::kF32, At(1), DType::kF32, At(0), count_); });
    for (const DType dtype : {DType::kF16, DType::kBF16}) {
      const std::string name(Name(dtype));
      Line("convert f32 to " + name, 6,
           [&] { return kernels_.convert(stream_, dtype, At(1), DType::kF32, At(0), count_); });
      Line("convert " + name + " to f32", 6,
           [&] { return kernels_.convert(stream_, DType::kF32, At(2), dtype, At(1), count_); });
    }
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
      const std::string name(Name(dtype));
      const auto size = static_cast<double>(SizeOf(dtype));
      for (const int sources : {2, kRanks}) {
        std::vector<const void*> srcs;
        for (int i = 0; i < sources; ++i) srcs.push_back(At(i));
        void* const dst = At(kRanks);
        Line("reduce " + name + ", average of " + std::to_string(sources), size * (sources + 1), [&] {
          return kernels_.reduce(stream_, dtype, ReduceOp::kAvg, 8, {&dst, 1}, srcs, count_);
        });
      }
      Line("divide " + name, 2 * size, [&] { return kernels_.divide(stream_, dtype, At(1), At(0), 3, count_); });
      Line("multiply " + name, 2 * size, [&] { return kernels_.multiply(stream_, dtype, At(1), At(0), 0.5, count_); });
    }
    const std::vector<const void*> two = {At(0), At(2)};
    constexpr Coefficient kHalves[] = {{1, 2}, {1, 2}};
    Line("combine two of f32", 12,
         [&] { return kernels_.combine(stream_, DType::kF32, At(1), two, kHalves, count_, kernels::Results::kAll); });
    const kernels::AdamFactors factors = {.beta1 = 0.9f,
                                          .from_gradient1 = 0.1f,
                                          .beta2 = 0.99f,
                                          .from_gradient2 = 0.01f,
                                          .step_size = 1e-3f,
                                          .epsilon = 1e-8f};
    Line("adam f32", 28, [&] {
      return kernels_.adam_step(stream_, DType::kF32, At(0), At(1), FloatsAt(2), FloatsAt(3), count_, factors);
    });
    Line("frozen adam f32", 20, [&] {
      return kernels_.frozen_adam_step(stream_, DType::kF32, At(0), At(1), FloatsAt(2), FloatsAt(3), count_, factors);
    });
    Line("blend into momentum f32", 12, [&] {
      return kernels_.blend_into_momentum(stream_, DType::kF32, At(1), At(0), FloatsAt(2), count_, factors);
    });
  }

  // The three launches of the two-shot exchange among kRanks ranks: all chunks are encoded, one is summed up and
  // encoded again, all are decoded.
  void Messages(const CodecChoice& choice) {
    const std::int64_t chunk = count_ / kRanks;
    const kernels::MessageLayout layout = choice.codec->layout(chunk, choice.options);
    const std::int64_t bytes = choice.codec->encoded_bytes(chunk, choice.options);
    const double share = static_cast<double>(bytes) / static_cast<double>(chunk);
    const std::int64_t stride = (bytes + 255) / 256 * 256;
    std::uint8_t* const messages = buffers_[1]->data();
    std::vector<EncodeJob> encode;
    std::vector<EncodeJob> with_residual;
    std::vector<kernels::DecodeJob> set;
    std::vector<kernels::DecodeJob> add;
    std::vector<const std::uint8_t*> versions;
    for (int i = 0; i < kRanks; ++i) {
      encode.push_back({layout, FloatsAt(0) + i * chunk, DType::kF32, messages + i * stride, 1, nullptr});
      with_residual.push_back(
          {layout, FloatsAt(0) + i * chunk, DType::kF32, messages + i * stride, 1, FloatsAt(3) + i * chunk});
      set.push_back({layout, messages + i * stride, FloatsAt(2) + i * chunk, DType::kF32, false});
      add.push_back({layout, messages + i * stride, FloatsAt(2) + i * chunk, DType::kF32, true});
      versions.push_back(messages + i * stride);
    }
    const EncodeJob middle = {layout, nullptr, DType::kF32, buffers_[4]->data(), 1, nullptr};
    const std::string name = ToString(choice);
    Line(name + ": encode with a residual", 12 + share, [&] { return kernels_.encode(stream_, with_residual); });
    Line(name + ": encode", 4 + share, [&] { return kernels_.encode(stream_, encode); });
    Line(name + ": decode", 4 + share, [&] { return kernels_.decode(stream_, set, nullptr); });
    Line(name + ": decode and add", 8 + share, [&] { return kernels_.decode(stream_, add, nullptr); });
    // A chunk of an eighth of the elements is summed up of eight messages.
    Line(name + ": middle of eight", share + (4 + share) / kRanks,
         [&] { return kernels_.recode(stream_, middle, FloatsAt(5), versions, kRanks, nullptr); });
  }

  const DeviceKernels& kernels_;
  cudaStream_t stream_;
  std::int64_t count_;
  StreamTimer timer_;
  std::vector<std::unique_ptr<DeviceMemory>> buffers_;
  double copy_rate_ = 0;
};

}  // namespace

void MeasureKernels(const DeviceKernels& on_gpu, cudaStream_t stream, std::int64_t count) {
  std::printf("%lld elements, messages of %d ranks\n", static_cast<long long>(count), kRanks);
  Measurement(on_gpu, stream, count).All();
}

}  // namespace tutti::gpu
