// The way to one peer over UCX.
#ifndef TUTTI_TRANSPORTS_UCX_ENDPOINT_H_
#define TUTTI_TRANSPORTS_UCX_ENDPOINT_H_

#include <cstdint>
#include <utility>

#include "base/unique_fd.h"
#include "memory/shared_region.h"
#include "transports/ucx/library.h"
#include "transports/ucx/process_memory.h"
#include "tutti/transport.h"

namespace tutti::ucx {

class UcxTransport;

class UcxEndpoint final : public Endpoint {
 public:
  UcxEndpoint(UcxTransport* transport, Rank peer) : transport_(transport), peer_(peer) {}

  void Send(std::uint64_t tag, const void* data, std::int64_t bytes, Completion* completion) override;
  void Recv(std::uint64_t tag, void* data, std::int64_t bytes, Completion* completion) override;
  MappedRegion region() const override { return region_; }
  bool reads_process() const override { return memory_.readable(); }
  bool ReadProcess(void* to, std::uint64_t place, std::int64_t bytes, absl::FunctionRef<bool()> is_lent) override;
  void Wake() override;

  // The members that UcxTransport uses.
  UcxTransport* transport() const { return transport_; }
  Rank peer() const { return peer_; }
  ucp_ep_h ep = nullptr;  // open from Connect until the peer is lost, or Shutdown
  void Show(MappedRegion own) { region_ = own; }
  // `wake`: the descriptor that ends the peer's Sleep; `memory`: that of the peer's process, where it can be read.
  void Keep(Mapping mapping, UniqueFd wake, ProcessMemory memory) {
    mapping_ = std::move(mapping);
    region_ = {mapping_.base(), mapping_.bytes()};
    wake_ = std::move(wake);
    memory_ = memory;
  }
  const ProcessMemory& memory() const { return memory_; }
  ProcessMemory& memory() { return memory_; }

 private:
  UcxTransport* const transport_;
  const Rank peer_;
  Mapping mapping_;
  MappedRegion region_;
  UniqueFd wake_;
  ProcessMemory memory_;
};

}  // namespace tutti::ucx

#endif  // TUTTI_TRANSPORTS_UCX_ENDPOINT_H_
