// The way from one rank to another inside the process.
#ifndef TUTTI_TRANSPORTS_INPROC_ENDPOINT_H_
#define TUTTI_TRANSPORTS_INPROC_ENDPOINT_H_

#include <cstdint>

#include "transports/inproc/hub.h"
#include "tutti/transport.h"

namespace tutti::inproc {

class InprocTransport;

class InprocEndpoint final : public Endpoint {
 public:
  InprocEndpoint(InprocTransport* transport, Rank peer, Port* port, bool mapped)
      : transport_(transport), peer_(peer), port_(port), mapped_(mapped) {}

  void Send(std::uint64_t tag, const void* data, std::int64_t bytes, Completion* completion) override;
  void Recv(std::uint64_t tag, void* data, std::int64_t bytes, Completion* completion) override;
  MappedRegion region() const override {
    return mapped_ ? MappedRegion{port_->region().base(), port_->region().bytes()} : MappedRegion{};
  }

  void Wake() override {
    if (mapped_) port_->Wake();
  }

  Port* port() const { return port_; }

 private:
  InprocTransport* const transport_;
  const Rank peer_;
  Port* const port_;
  const bool mapped_;
};

}  // namespace tutti::inproc

#endif  // TUTTI_TRANSPORTS_INPROC_ENDPOINT_H_
