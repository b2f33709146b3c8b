// The way to one peer through another transport, with a count of the messages sent that way and of the uses of each
// tag.
#ifndef TUTTI_TRANSPORTS_FAULTY_ENDPOINT_H_
#define TUTTI_TRANSPORTS_FAULTY_ENDPOINT_H_

#include <cstdint>

#include "transports/faulty/tags.h"
#include "tutti/transport.h"

namespace tutti::faulty {

class FaultyTransport;

class FaultyEndpoint final : public Endpoint {
 public:
  FaultyEndpoint(FaultyTransport* transport, Rank peer, Endpoint* inner)
      : transport_(transport), peer_(peer), inner_(inner) {}

  void Send(std::uint64_t tag, const void* data, std::int64_t bytes, Completion* completion) override;
  void Recv(std::uint64_t tag, void* data, std::int64_t bytes, Completion* completion) override;
  MappedRegion region() const override { return inner_->region(); }
  bool reads_process() const override { return inner_->reads_process(); }
  bool ReadProcess(void* to, std::uint64_t place, std::int64_t bytes, absl::FunctionRef<bool()> is_lent) override {
    return inner_->ReadProcess(to, place, bytes, is_lent);
  }
  void Wake() override { inner_->Wake(); }

  Rank peer() const { return peer_; }
  Endpoint& inner() const { return *inner_; }

  // The state of the endpoint, which only the transport changes.
  std::int64_t messages = 0;  // messages sent to the peer so far
  bool lost = false;          // kHalfOpen has happened: nothing reaches the peer any more
  bool given_up = false;      // Check has listed the peer: its messages end with the cause, without further faults
  std::int64_t free_ns = 0;   // kSlow: the time (of MonotonicNanos) when the last message has left
  TagUses sent_tags;
  TagUses received_tags;

 private:
  FaultyTransport* const transport_;
  const Rank peer_;
  Endpoint* const inner_;
};

}  // namespace tutti::faulty

#endif  // TUTTI_TRANSPORTS_FAULTY_ENDPOINT_H_
