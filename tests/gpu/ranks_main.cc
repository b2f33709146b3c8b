// Checks that several ranks make together on one GPU, with the real CUDA and NCCL, or on the fakes of both.
//
//   gpu_ranks list                       the checks, each with its numbers of ranks and its timeout in seconds
//   gpu_ranks info                       the GPUs, CUDA and NCCL, or why there are none
//   gpu_ranks [--fake] [NAME [RANKS]]    all checks, or one, or one with this number of ranks
//   gpu_ranks --fake-process NAME        one check with one rank, which is a process, but on the fakes
//
// Exits with 77, which ctest shows as skipped, where there is no GPU or no NCCL; with 1 when a check fails.
#include <cstdio>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "tests/gpu/capture.h"
#include "tests/gpu/rank_check.h"
#include "tests/harness/fake_device.h"
#include "tutti/devices.h"

namespace tutti::gpu {

namespace {

struct Wanted {
  bool fake = false;     // ranks are threads on the fakes
  bool process = false;  // ranks are processes; with `fake`, one rank
  std::string name;      // empty: all checks
  int size = 0;          // 0: all sizes of the check
};

void List() {
  for (const RankCheck& check : AllRankChecks()) {
    std::printf("%s %s %.0f %s\n", check.name.c_str(), absl::StrJoin(check.sizes, ",").c_str(),
                absl::ToDoubleSeconds(check.timeout), std::string(check.summary).c_str());
  }
}

void Describe() {
  const absl::StatusOr<CudaSummary> cuda = DescribeCuda();
  if (cuda.ok()) {
    std::printf("cuda_runtime: %s\ncuda_driver: %s\n", cuda->runtime.c_str(), cuda->driver.c_str());
    for (const DeviceSummary& device : cuda->devices) std::printf("gpu: %s\n", device.name.c_str());
  } else {
    std::printf("cuda: %s\n", std::string(cuda.status().message()).c_str());
  }
  const absl::StatusOr<NcclSummary> nccl = DescribeNccl();
  if (nccl.ok()) {
    std::printf("nccl: %s\nnccl_path: %s\n", nccl->version.c_str(), nccl->path.c_str());
  } else {
    std::printf("nccl: %s\n", std::string(nccl.status().message()).c_str());
  }
}

int Run(const Wanted& wanted) {
  int runs = 0;
  int failures = 0;
  for (const RankCheck& check : AllRankChecks()) {
    if (!wanted.name.empty() && wanted.name != check.name) continue;
    for (const int size : check.sizes) {
      if (wanted.size != 0 && wanted.size != size) continue;
      ++runs;
      std::printf("%s, %d rank%s: %s\n", check.name.c_str(), size, size > 1 ? "s" : "",
                  std::string(check.summary).c_str());
      std::fflush(stdout);
      const absl::Time begin = absl::Now();
      const absl::Status status = wanted.fake && !wanted.process
                                      ? RunOnFakes(check, size)
                                      : RunOnGpu(check, size, {BeginCapture, EndCapture, LaunchGraph, DestroyGraph});
      if (!status.ok()) {
        ++failures;
        std::printf("    %s\n", std::string(status.message()).c_str());
      }
      std::printf("  %s after %.1f s\n", status.ok() ? "passed" : "FAILED", absl::ToDoubleSeconds(absl::Now() - begin));
      std::fflush(stdout);
    }
  }
  if (runs == 0) std::fprintf(stderr, "no such check; `gpu_ranks list` names all\n");
  return runs > 0 && failures == 0 ? 0 : 1;
}

int Main(int argc, char** argv) {
  constexpr int kSkipped = 77;
  Wanted wanted;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "list") {
      List();
      return 0;
    }
    if (argument == "info") {
      Describe();
      return 0;
    }
    if (argument == "--fake" || argument == "--fake-process") {
      wanted.fake = true;
      wanted.process = argument == "--fake-process";
      if (wanted.process) wanted.size = 1;
    } else if (wanted.name.empty()) {
      wanted.name = argument;
    } else if (!absl::SimpleAtoi(argument, &wanted.size) || wanted.size < 1) {
      std::fprintf(stderr, "%s is no number of ranks\n", argument.c_str());
      return 2;
    }
  }
  if (wanted.process) {
    UseFakeDevices();
  } else if (!wanted.fake) {
    if (const absl::Status found = FindGpu(); !found.ok()) {
      std::printf("%s\n", std::string(found.message()).c_str());
      return kSkipped;
    }
  }
  return Run(wanted);
}

}  // namespace
}  // namespace tutti::gpu

int main(int argc, char** argv) { return tutti::gpu::Main(argc, argv); }
