#include "transports/faulty/endpoint.h"

#include "transports/faulty/transport.h"

namespace tutti::faulty {

void FaultyEndpoint::Send(std::uint64_t tag, const void* data, std::int64_t bytes, Completion* completion) {
  transport_->PostSend(*this, {.tag = tag, .data = data, .bytes = bytes, .completion = completion});
}

void FaultyEndpoint::Recv(std::uint64_t tag, void* data, std::int64_t bytes, Completion* completion) {
  transport_->PostRecv(*this, tag, data, bytes, completion);
}

}  // namespace tutti::faulty
