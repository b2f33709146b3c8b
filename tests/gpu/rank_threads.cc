// Ranks of a check as threads of this process, over the fakes of CUDA and NCCL.
#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <vector>

#include "comm/device_parts.h"
#include "tests/gpu/rank_check.h"
#include "tests/gpu/rank_report.h"
#include "tests/harness/fake_cuda.h"
#include "tests/harness/fake_device.h"
#include "tests/harness/fake_nccl.h"
#include "tests/harness/world.h"

namespace tutti::gpu {
namespace {

CudaError BeginCapture(CUstream_st* stream) {
  FakeCuda::BeginCapture(stream);
  return kCudaSuccess;
}

CudaError EndCapture(CUstream_st* stream, void** graph) {
  auto captured = std::make_unique<FakeGraph>();
  const CudaError error = FakeCuda::EndCapture(stream, captured.get());
  *graph = captured.release();
  return error;
}

CudaError LaunchGraph(void* graph, CUstream_st* stream) {
  FakeCuda::LaunchGraph(*static_cast<FakeGraph*>(graph), stream);
  return kCudaSuccess;
}

void DestroyGraph(void* graph) { delete static_cast<FakeGraph*>(graph); }

}  // namespace

absl::Status RunOnFakes(const RankCheck& check, int size) {
  UseFakeDevices();
  const FakeNccl::With sockets({.peers_notice_ends = true});
  const DeviceParts parts = PartsOfThisProcess().value();
  WorldOptions options;
  options.on_devices = true;
  options.on_one_device = check.is_staged;
  options.communicator.gpu_transport = check.is_staged ? "staged" : "nccl";
  options.communicator.timeout = kPatience;
  std::vector<absl::Status> results(static_cast<std::size_t>(size), absl::UnavailableError("has not joined"));
  RunWorld(size, options, [&](Communicator& comm) {
    CheckedRank rank = {.comm = comm,
                        .device = {.cuda = parts.cuda,
                                   .native = parts.native,
                                   .capture = {BeginCapture, EndCapture, LaunchGraph, DestroyGraph},
                                   .index = *comm.cuda_device(),
                                   .is_fake = true},
                        .die = [] { return absl::OkStatus(); },
                        .note =
                            [&comm](const std::string& text) {
                              if (comm.rank() == 0) std::printf("    %s\n", text.c_str());
                            }};
    results[static_cast<std::size_t>(comm.rank())] = check.run(rank);
  });
  // The fakes report what nobody may do to them as failures of a test.
  if (::testing::UnitTest::GetInstance()->Failed()) return absl::InternalError("a fake was misused: see above");
  return Joined(results);
}

}  // namespace tutti::gpu
