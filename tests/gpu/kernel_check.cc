#include "tests/gpu/kernel_check.h"

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "tests/codecs/message_cases.h"
#include "tests/gpu/device_memory.h"
#include "tests/kernels/arithmetic_cases.h"

namespace tutti::gpu {
namespace {

using kernels::CaseBuffer;
using kernels::DeviceCase;
using kernels::DeviceKernels;

// Runs cases on the GPU and in host memory. The buffers of a case lie in one range of memory, which is copied at once.
class Checker {
 public:
  Checker(const DeviceKernels& on_gpu, cudaStream_t stream) : on_gpu_(on_gpu), stream_(stream), device_(kMaxBytes) {}

  void Run(const DeviceCase& the_case) {
    ++cases_;
    std::vector<std::size_t> places;
    std::size_t bytes = 0;
    for (const CaseBuffer& buffer : the_case.buffers) {
      places.push_back(bytes);
      bytes += (buffer.bytes.size() + kAlignment - 1) / kAlignment * kAlignment;
    }
    if (bytes > kMaxBytes) return Fail(the_case, "its buffers are larger than the memory for cases");
    image_.assign(bytes, 0);
    for (std::size_t i = 0; i < places.size(); ++i) {
      const CaseBuffer& buffer = the_case.buffers[i];
      if (!buffer.bytes.empty()) std::memcpy(&image_[places[i]], buffer.bytes.data(), buffer.bytes.size());
    }
    std::vector<std::uint8_t*> memory;
    for (const std::size_t place : places) memory.push_back(device_.data() + place);
    Check(cudaMemcpyAsync(device_.data(), image_.data(), bytes, cudaMemcpyHostToDevice, stream_), "copy to the GPU");
    if (const absl::Status status = the_case.run(on_gpu_, stream_, memory); !status.ok()) {
      return Fail(the_case, std::string(status.message()));
    }
    Check(cudaMemcpyAsync(image_.data(), device_.data(), bytes, cudaMemcpyDeviceToHost, stream_), "copy from the GPU");
    Check(cudaStreamSynchronize(stream_), the_case.name.c_str());
    std::vector<CaseBuffer> expected = the_case.buffers;
    if (const absl::Status status = the_case.run(kernels::HostKernels(), nullptr, kernels::PointersTo(expected));
        !status.ok()) {
      return Fail(the_case, std::string(status.message()));
    }
    for (std::size_t i = 0; i < places.size(); ++i) {
      CaseBuffer got = the_case.buffers[i];
      got.bytes.assign(image_.begin() + static_cast<std::ptrdiff_t>(places[i]),
                       image_.begin() + static_cast<std::ptrdiff_t>(places[i] + got.bytes.size()));
      const std::string difference = kernels::Difference(expected[i], got);
      if (!difference.empty()) return Fail(the_case, "buffer " + std::to_string(i) + ": " + difference);
    }
  }

  // Prints how many cases of `what` ran since the last call, and returns the number of failed ones since the beginning.
  int Report(const std::string& what) {
    std::printf("%-60s %6d cases, %d of all failed\n", what.c_str(), cases_, failures_);
    std::fflush(stdout);
    cases_ = 0;
    printed_ = 0;
    return failures_;
  }

 private:
  static constexpr std::size_t kAlignment = 256;
  static constexpr std::size_t kMaxBytes = std::size_t{64} << 20;
  static constexpr int kMaxPrinted = 4;  // of those between two reports

  void Fail(const DeviceCase& the_case, const std::string& why) {
    ++failures_;
    if (++printed_ <= kMaxPrinted) std::printf("FAILED %s: %s\n", the_case.name.c_str(), why.c_str());
  }

  const DeviceKernels& on_gpu_;
  cudaStream_t stream_;
  DeviceMemory device_;
  std::vector<std::uint8_t> image_;
  int cases_ = 0;
  int failures_ = 0;
  int printed_ = 0;
};

}  // namespace

int CheckKernels(const DeviceKernels& on_gpu, cudaStream_t stream, bool large) {
  Checker checker(on_gpu, stream);
  const auto run = [&checker](const DeviceCase& the_case) { checker.Run(the_case); };
  kernels::VisitReduceCases(run);
  checker.Report("reduce");
  kernels::VisitConvertCases(run);
  checker.Report("convert");
  kernels::VisitScaleCases(run);
  kernels::VisitCombineCases(run);
  checker.Report("divide, multiply, combine");
  kernels::VisitAdamCases(run);
  int failures = checker.Report("adam");
  for (const CodecChoice& choice : ChoicesOnDevices()) {
    VisitMessageCases(choice, large, run);
    failures = checker.Report(ToString(choice));
  }
  return failures;
}

}  // namespace tutti::gpu
