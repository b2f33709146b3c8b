#include "bench/gpu/raw_nccl.h"

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/gpu/rank_memory.h"
#include "tests/harness/fake_nccl.h"
#include "tutti/bootstrap.h"

namespace tutti::gpu {

absl::StatusOr<RawNccl> RawNccl::Connect(CheckedRank& rank) {
  const nccl::Library* library = &FakeNccl::Table();
  if (!rank.device.is_fake) {
    const absl::StatusOr<nccl::Library>& loaded = nccl::LoadedLibrary();
    if (!loaded.ok()) return loaded.status();
    library = &*loaded;
  }
  RawNccl raw(*library);
  nccl::UniqueId id = {};
  if (rank.rank() == 0) {
    const absl::Status made = raw.StatusOf(library->get_unique_id(&id), "ncclGetUniqueId");
    if (!made.ok()) return made;
  }
  const absl::StatusOr<std::vector<std::string>> ids =
      ExchangeBlobs(rank.comm.store(), "raw_nccl", rank.rank(), rank.size(),
                    absl::string_view(id.bytes, sizeof id.bytes), absl::Now() + kPatience);
  if (!ids.ok()) return ids.status();
  std::memcpy(id.bytes, ids->front().data(), sizeof id.bytes);
  Require(rank.cuda(), rank.cuda().set_device(rank.device.index), "set_device");
  nccl::Config config;
  config.blocking = 1;
  const nccl::Result made = library->comm_init_rank_config(&raw.comm_, rank.size(), id, rank.rank(), &config);
  if (absl::Status status = raw.StatusOf(made, "ncclCommInitRankConfig"); !status.ok()) return status;
  if (absl::Status status = raw.Settle(); !status.ok()) return status;
  return raw;
}

RawNccl::~RawNccl() {
  if (comm_ != nullptr) nccl_->comm_abort(comm_);
}

absl::Status RawNccl::AllReduce(void* data, std::int64_t count, CUstream_st* stream) {
  return StatusOf(nccl_->all_reduce(data, data, static_cast<std::size_t>(count), nccl::DataType::kFloat32,
                                    nccl::RedOp::kSum, comm_, stream),
                  "ncclAllReduce");
}

absl::Status RawNccl::Settle() {
  nccl::Result state = nccl::Result::kInProgress;
  for (const absl::Time end = absl::Now() + kPatience; state == nccl::Result::kInProgress && absl::Now() < end;
       std::this_thread::yield()) {
    const nccl::Result asked = nccl_->comm_get_async_error(comm_, &state);
    if (absl::Status status = StatusOf(asked, "ncclCommGetAsyncError"); !status.ok()) return status;
  }
  if (state == nccl::Result::kInProgress) return absl::DeadlineExceededError("NCCL has not put its call on the stream");
  return StatusOf(state, "NCCL's communicator");
}

absl::Status RawNccl::StatusOf(nccl::Result result, const char* what) const {
  if (nccl::IsGood(result)) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(what, ": ", nccl_->get_error_string(result)));
}

}  // namespace tutti::gpu
