// A transport that hands every call over to another transport: the base of transports that change a few calls.
#ifndef TUTTI_TRANSPORTS_FORWARDING_H_
#define TUTTI_TRANSPORTS_FORWARDING_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tutti/transport.h"

namespace tutti {

class ForwardingTransport : public Transport {
 public:
  absl::string_view name() const override { return inner_->name(); }
  MappedRegion region() const override { return inner_->region(); }
  absl::StatusOr<std::string> Address() override { return inner_->Address(); }
  using Transport::Connect;
  absl::Status Connect(Rank rank, absl::Span<const std::string> addresses, absl::Time deadline,
                       ConnectWatch watch) override {
    return inner_->Connect(rank, addresses, deadline, watch);
  }
  Endpoint& endpoint(Rank peer) override { return inner_->endpoint(peer); }
  void RecvFromAny(std::uint64_t tag, void* data, std::int64_t bytes, Completion* completion) override {
    inner_->RecvFromAny(tag, data, bytes, completion);
  }
  bool ShowsToPeers(const void* data, std::int64_t bytes) const override { return inner_->ShowsToPeers(data, bytes); }
  bool Progress() override { return inner_->Progress(); }
  bool Drain() override { return inner_->Drain(); }
  bool CallEnded() override { return inner_->CallEnded(); }
  bool HoldsSent() override { return inner_->HoldsSent(); }
  void Sleep(absl::Time until) override { inner_->Sleep(until); }
  void Wake() override { inner_->Wake(); }
  absl::Span<const Loss> Check() override { return inner_->Check(); }
  void Disconnect(Rank peer, const absl::Status& cause) override { inner_->Disconnect(peer, cause); }
  void Discard(std::uint32_t group) override { inner_->Discard(group); }
  void Accept(std::uint32_t group) override { inner_->Accept(group); }
  void Tell(Rank peer, std::uint32_t group, const absl::Status& cause) override { inner_->Tell(peer, group, cause); }
  std::optional<Note> TakeNote() override { return inner_->TakeNote(); }
  bool HasLeft(Rank peer) override { return inner_->HasLeft(peer); }
  std::int64_t BytesMovedWith(Rank peer) const override { return inner_->BytesMovedWith(peer); }
  bool IsReceivingFrom(Rank peer) const override { return inner_->IsReceivingFrom(peer); }
  void ShowWaitsFor(const std::atomic<Rank>* waits_for) override { inner_->ShowWaitsFor(waits_for); }
  void AskWaitsFor(Rank peer) override { inner_->AskWaitsFor(peer); }
  std::optional<Rank> WaitsFor(Rank peer) override { return inner_->WaitsFor(peer); }
  bool HasEnded(Rank peer) override { return inner_->HasEnded(peer); }
  absl::Status Seclude(std::byte* data, std::int64_t bytes) override { return inner_->Seclude(data, bytes); }
  void Shutdown(const absl::Status& cause) override { inner_->Shutdown(cause); }

 protected:
  explicit ForwardingTransport(std::unique_ptr<Transport> inner) : inner_(std::move(inner)) {}

  Transport& inner() { return *inner_; }

 private:
  const std::unique_ptr<Transport> inner_;
};

}  // namespace tutti

#endif  // TUTTI_TRANSPORTS_FORWARDING_H_
