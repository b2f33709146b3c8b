#include "comm/gpu_transport_choice.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/clock.h"
#include "comm/bootstrap_exchange.h"
#include "tutti/bootstrap.h"

namespace tutti {

absl::Status CheckGpuTransport(absl::string_view wanted) {
  if (wanted == "auto" || wanted == "nccl" || wanted == "staged") return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("gpu_transport=", wanted, ": expected auto, nccl or staged"));
}

absl::StatusOr<GpuTransportChoice> ChooseGpuTransport(absl::string_view wanted, absl::Span<const GpuOfRank> gpus) {
  if (wanted == "staged")
    return GpuTransportChoice{.staged = true,
                              .reason = "as TUTTI_GPU_TRANSPORT or CommunicatorOptions::gpu_transport says"};
  for (std::size_t rank = 0; rank < gpus.size(); ++rank) {
    if (gpus[rank].without_nccl.empty()) continue;
    const std::string reason = absl::StrCat("rank ", rank, " has no NCCL: ", gpus[rank].without_nccl);
    if (wanted == "auto") return GpuTransportChoice{.staged = true, .reason = reason};
    return absl::FailedPreconditionError(absl::StrCat("TUTTI_GPU_TRANSPORT=nccl: ", reason));
  }
  if (wanted == "nccl")
    return GpuTransportChoice{.reason = "as TUTTI_GPU_TRANSPORT or CommunicatorOptions::gpu_transport says"};
  std::map<absl::string_view, std::size_t> owners;
  for (std::size_t rank = 0; rank < gpus.size(); ++rank) {
    const auto [first, is_new] = owners.try_emplace(gpus[rank].uuid, rank);
    if (is_new) continue;
    return GpuTransportChoice{
        .staged = true,
        .reason = absl::StrCat("ranks ", first->second, " and ", rank, " have one GPU, which NCCL refuses")};
  }
  return GpuTransportChoice{.reason = "all ranks have NCCL, and a GPU each"};
}

absl::StatusOr<GpuTransportChoice> AgreeOnGpuTransport(Store& store, Rank rank, int size, absl::string_view wanted,
                                                       const CudaRuntime& cuda, int device,
                                                       const absl::Status& without_nccl, std::int64_t end_ns) {
  constexpr absl::string_view kExchange = "gpus";
  char uuid[16] = {};
  if (const CudaError error = cuda.device_uuid(uuid, device); error != kCudaSuccess) {
    return StayAway(store, kExchange, rank, size,
                    CudaStatus(cuda, error, absl::StrCat("rank ", rank, ": the UUID of GPU ", device)));
  }
  const std::string mine = absl::StrCat(absl::BytesToHexString(absl::string_view(uuid, sizeof uuid)), " ",
                                        without_nccl.ok() ? "" : without_nccl.message());
  const absl::StatusOr<std::vector<std::string>> all =
      ExchangeBlobs(store, kExchange, rank, size, mine, TimeAt(end_ns));
  if (!all.ok()) return all.status();
  std::vector<GpuOfRank> gpus;
  for (const std::string& said : *all) {
    std::pair<std::string, std::string> parts = absl::StrSplit(said, absl::MaxSplits(' ', 1));
    gpus.push_back({.uuid = std::move(parts.first), .without_nccl = std::move(parts.second)});
  }
  return ChooseGpuTransport(wanted, gpus);
}

}  // namespace tutti
