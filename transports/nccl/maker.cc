#include "transports/nccl/maker.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "transports/nccl/transport.h"

namespace tutti {
namespace nccl {

absl::StatusOr<std::string> NcclMaker::NewId() const {
  const absl::StatusOr<UniqueId> id = NewUniqueId(nccl_);
  if (!id.ok()) return id.status();
  return std::string(id->bytes, sizeof id->bytes);
}

absl::StatusOr<std::unique_ptr<NativeTransport>> NcclMaker::Connect(absl::string_view id, Rank rank, int size,
                                                                    int device, absl::Time deadline) const {
  ConnectOptions options = {.nccl = &nccl_, .cuda = &cuda_, .device = device, .rank = rank, .size = size};
  if (id.size() != sizeof options.id.bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", rank, ": an id of NCCL has ", sizeof options.id.bytes, " bytes, and not ", id.size()));
  }
  std::memcpy(options.id.bytes, id.data(), id.size());
  return nccl::Connect(options, deadline);
}

}  // namespace nccl

absl::StatusOr<const NativeTransportMaker*> NcclTransports() {
  const absl::StatusOr<const CudaRuntime*>& cuda = Cuda();
  if (!cuda.ok()) return cuda.status();
  const absl::StatusOr<nccl::Library>& library = nccl::LoadedLibrary();
  if (!library.ok()) return library.status();
  static const nccl::NcclMaker* const maker = new nccl::NcclMaker(*library, **cuda);  // lives as long as the process
  return maker;
}

}  // namespace tutti
