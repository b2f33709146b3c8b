// Measures Tutti on one GPU, with one or two ranks as processes that share the GPU.
//
//   gpu_bench [--fake] host_time RANKS     the host's time of a call, beside NCCL's own
//   gpu_bench [--fake] steps LINK          the exchange of a step between two ranks; LINK names the figures
//
// NCCL's bytes travel over the loopback interface. Whoever shapes that interface says so with LINK. Ranks that share a
// GPU take turns on it by the millisecond, so what two ranks take is no latency of a real job.
//
// With --fake, the ranks are threads on the fakes of CUDA and NCCL, and figures mean nothing. Exits with 77 where there
// is no GPU or no NCCL.
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "bench/gpu/host_time.h"
#include "bench/gpu/steps.h"
#include "tests/gpu/rank_check.h"

namespace tutti::gpu {
namespace {

int Main(std::vector<std::string> arguments) {
  constexpr int kSkipped = 77;
  const bool fake = !arguments.empty() && arguments[0] == "--fake";
  if (fake) arguments.erase(arguments.begin());
  int size = 2;
  RankCheck bench = {.name = "bench", .sizes = {}, .timeout = absl::Seconds(120)};
  if (arguments.size() == 2 && arguments[0] == "host_time" && absl::SimpleAtoi(arguments[1], &size) && size >= 1) {
    bench.run = MeasureHostTime;
  } else if (arguments.size() == 2 && arguments[0] == "steps") {
    bench.run = [link = arguments[1]](CheckedRank& rank) { return MeasureSteps(rank, link); };
  } else {
    std::fprintf(stderr, "usage: gpu_bench [--fake] host_time RANKS | steps LINK\n");
    return 2;
  }
  if (!fake) {
    if (const absl::Status found = FindGpu(); !found.ok()) {
      std::printf("%s\n", std::string(found.message()).c_str());
      return kSkipped;
    }
  }
  const absl::Status status = fake ? RunOnFakes(bench, size) : RunOnGpu(bench, size, {});
  if (!status.ok()) std::printf("%s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace tutti::gpu

int main(int argc, char** argv) { return tutti::gpu::Main({argv + 1, argv + argc}); }
