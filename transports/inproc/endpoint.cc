#include "transports/inproc/endpoint.h"

#include "transports/inproc/transport.h"

namespace tutti::inproc {

void InprocEndpoint::Send(std::uint64_t tag, const void* data, std::int64_t bytes, Completion* completion) {
  transport_->PostSend(peer_, port_, tag, data, bytes, completion);
}

void InprocEndpoint::Recv(std::uint64_t tag, void* data, std::int64_t bytes, Completion* completion) {
  transport_->PostRecv(peer_, tag, {data, bytes, completion});
}

}  // namespace tutti::inproc
