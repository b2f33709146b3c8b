// Makes native transports over an NCCL and a CUDA.
#ifndef TUTTI_TRANSPORTS_NCCL_MAKER_H_
#define TUTTI_TRANSPORTS_NCCL_MAKER_H_

#include <memory>
#include <string>

#include "memory/cuda_runtime.h"
#include "transports/nccl/library.h"
#include "tutti/native_transport.h"

namespace tutti::nccl {

class NcclMaker final : public NativeTransportMaker {
 public:
  // Both tables outlive the maker and all that it makes.
  NcclMaker(const Library& nccl, const CudaRuntime& cuda) : nccl_(nccl), cuda_(cuda) {}

  absl::StatusOr<std::string> NewId() const override;
  absl::StatusOr<std::unique_ptr<NativeTransport>> Connect(absl::string_view id, Rank rank, int size, int device,
                                                           absl::Time deadline) const override;

 private:
  const Library& nccl_;
  const CudaRuntime& cuda_;
};

}  // namespace tutti::nccl

#endif  // TUTTI_TRANSPORTS_NCCL_MAKER_H_
