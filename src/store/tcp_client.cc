#include "store/tcp_client.h"

#include <unistd.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/fork.h"
#include "base/standard_descriptors.h"
#include "store/client_session.h"
#include "store/handshake.h"
#include "store/limits.h"
#include "store/message.h"
#include "store/socket.h"
#include "tutti/store.h"

namespace tutti {
namespace {

// The time for one attempt to connect and authenticate; a server that is alive needs milliseconds.
constexpr absl::Duration kAttemptTimeout = absl::Seconds(10);

Nonce RandomNonce() {
  Nonce nonce;
  FillRandom(absl::MakeSpan(nonce));
  return nonce;
}

absl::StatusOr<ClientLink> Authenticate(absl::string_view address, const JobKey& job, Rank rank, std::int64_t end_ns) {
  HoldStandardDescriptors();
  absl::StatusOr<UnsharedFd> fd = ConnectTcp(address, end_ns);
  if (!fd.ok()) return fd.status();

  // The process id is part of the hash, so that a forked child counts as another process.
  static const Nonce program = RandomNonce();
  ClientHello hello{.rank = rank, .size = job.size, .job = Sha256(job.job_id), .nonce = RandomNonce()};
  hello.process = Sha256(absl::StrCat(View(program), ::getpid()));
  const std::string client_hello = Encode(hello);
  if (absl::Status status = SendAll(fd->get(), client_hello, end_ns); !status.ok()) return status;

  absl::StatusOr<std::string> reply = ReceiveExactly(fd->get(), kServerHelloBytes + kProofBytes, end_ns);
  if (!reply.ok()) return reply.status();
  const absl::string_view server_hello = absl::string_view(*reply).substr(0, kServerHelloBytes);
  const std::optional<ServerHello> server = DecodeServerHello(server_hello);
  if (!server) return absl::PermissionDeniedError("the program that listens at the address is not a Tutti store");
  const HandshakeKeys keys = DeriveKeys(job.secret, client_hello, server_hello);
  if (!SameMac(absl::string_view(*reply).substr(kServerHelloBytes), keys.server_proof)) {
    return absl::PermissionDeniedError("the server holds another job secret");
  }
  if (server->version != kStoreVersion) {
    return absl::FailedPreconditionError(absl::StrCat("the server speaks version ", server->version,
                                                      " of the store protocol, rank ", rank, " version ",
                                                      kStoreVersion));
  }
  if (absl::Status status = SendAll(fd->get(), View(keys.client_proof), end_ns); !status.ok()) return status;

  ClientLink link{.address = std::string(address),
                  .fd = *std::move(fd),
                  .reader = FrameReader(keys.server_to_client),
                  .writer = FrameWriter(keys.client_to_server)};
  while (true) {
    absl::StatusOr<std::optional<std::string>> body = link.reader.Next();
    if (!body.ok()) return body.status();
    if (body->has_value()) {
      absl::StatusOr<StoreResponse> welcome = ParseResponse(**body);
      if (!welcome.ok()) return welcome.status();
      if (welcome->code != absl::StatusCode::kOk) return absl::Status(welcome->code, welcome->text);
      if (welcome->sum != kNoRank) link.serving_rank = static_cast<Rank>(welcome->sum);
      return link;
    }
    absl::StatusOr<std::string> more = ReceiveSome(link.fd.get(), 4096, end_ns);
    if (!more.ok()) return more.status();
    link.reader.Append(*more);
  }
}

class TcpStore final : public Store {
 public:
  explicit TcpStore(ClientLink link) : session_(std::make_unique<ClientSession>(std::move(link))) {}

  ~TcpStore() override {
    if (!maker_.is_this()) LeaveToParent(std::move(session_));
  }

  absl::Status Set(absl::string_view key, absl::string_view value, absl::Time deadline) override {
    if (absl::Status status = CheckKeyAndValue(key, value); !status.ok()) return status;
    return Call({.op = StoreOp::kSet, .key = std::string(key), .value = std::string(value)}, deadline).status();
  }

  absl::StatusOr<std::string> Get(absl::string_view key, absl::Time deadline, OnGone on_gone) override {
    if (absl::Status status = CheckKey(key); !status.ok()) return status;
    if (absl::Status status = CheckProcess(); !status.ok()) return status;
    return session_->Await(key, NanosAt(deadline), on_gone);
  }

  absl::StatusOr<std::string> Look(absl::string_view key, absl::Time deadline) override {
    if (absl::Status status = CheckKey(key); !status.ok()) return status;
    absl::StatusOr<StoreResponse> response = Call({.op = StoreOp::kGet, .key = std::string(key)}, deadline);
    if (!response.ok()) return response.status();
    return std::move(response->text);
  }

  absl::StatusOr<std::int64_t> Add(absl::string_view key, std::int64_t delta, absl::Time deadline) override {
    if (absl::Status status = CheckKey(key); !status.ok()) return status;
    const absl::StatusOr<StoreResponse> response =
        Call({.op = StoreOp::kAdd, .delta = delta, .key = std::string(key)}, deadline);
    if (!response.ok()) return response.status();
    return response->sum;
  }

  absl::Status Delete(absl::string_view key, absl::Time deadline) override {
    if (absl::Status status = CheckKey(key); !status.ok()) return status;
    return Call({.op = StoreOp::kDelete, .key = std::string(key)}, deadline).status();
  }

 private:
  absl::Status CheckProcess() const {
    if (maker_.is_this()) return absl::OkStatus();
    return absl::FailedPreconditionError(
        absl::StrCat("store server at ", session_->address(),
                     ": the connection belongs to the process that made it, not to a forked child"));
  }

  absl::StatusOr<StoreResponse> Call(StoreRequest request, absl::Time deadline) {
    if (absl::Status status = CheckProcess(); !status.ok()) return status;
    return session_->Call(std::move(request), NanosAt(deadline));
  }

  const MakerProcess maker_;
  std::unique_ptr<ClientSession> session_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<Store>> TryTcpStore(absl::string_view address, const JobKey& job, Rank rank,
                                                   std::int64_t end_ns) {
  absl::StatusOr<ClientLink> link = Authenticate(address, job, rank, std::min(end_ns, NanosIn(kAttemptTimeout)));
  absl::Status status = link.status();
  if (link.ok()) {
    try {
      return std::make_shared<TcpStore>(*std::move(link));
    } catch (const std::system_error& no_thread) {
      status = absl::ResourceExhaustedError(absl::StrCat("cannot start the thread of the connection of rank ", rank,
                                                         ": ", no_thread.what(), "; raise the limit (ulimit -u)"));
    }
  }
  return absl::Status(status.code(), absl::StrCat("store server at ", address, ": ", status.message()));
}

absl::StatusOr<std::shared_ptr<Store>> ConnectTcpStore(absl::string_view address, const JobKey& job, Rank rank,
                                                       absl::Time deadline) {
  const std::int64_t end_ns = NanosAt(deadline);
  absl::Duration pause = absl::Milliseconds(1);
  while (true) {
    absl::StatusOr<std::shared_ptr<Store>> store = TryTcpStore(address, job, rank, end_ns);
    if (!absl::IsUnavailable(store.status()) && !absl::IsDeadlineExceeded(store.status())) return store;
    if (LeftUntil(end_ns) < pause) {
      return absl::DeadlineExceededError(
          absl::StrCat("rank ", rank, " could not join in time. ", store.status().message()));
    }
    absl::SleepFor(pause);
    pause = std::min(2 * pause, absl::Milliseconds(100));
  }
}

}  // namespace tutti
