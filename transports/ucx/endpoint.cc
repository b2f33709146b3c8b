#include "transports/ucx/endpoint.h"

#include "transports/ucx/transport.h"

namespace tutti::ucx {

void UcxEndpoint::Send(std::uint64_t tag, const void* data, std::int64_t bytes, Completion* completion) {
  transport_->PostSend(*this, tag, data, bytes, completion);
}

void UcxEndpoint::Recv(std::uint64_t tag, void* data, std::int64_t bytes, Completion* completion) {
  transport_->PostRecv(peer_, tag, data, bytes, completion);
}

bool UcxEndpoint::ReadProcess(void* to, std::uint64_t place, std::int64_t bytes, absl::FunctionRef<bool()> is_lent) {
  const absl::Status copied = memory_.Read(to, place, static_cast<std::size_t>(bytes));
  if (copied.ok()) return true;
  // A process that has ended is told by NotFound, and its end counts in any case.
  if (!absl::IsNotFound(copied) && !is_lent()) return false;
  return transport_->HasRead(peer_, copied);  // which suspects the peer
}

void UcxEndpoint::Wake() {
  if (wake_.valid()) WakeSleeper(wake_);
}

}  // namespace tutti::ucx
