#include "store/tcp_client.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/mutex.h"
#include "store/frame.h"
#include "store/handshake.h"
#include "store/limits.h"
#include "store/message.h"
#include "store/socket.h"
#include "tutti/store.h"

namespace tutti {
namespace {

// The server answers everything but a waiting Get at once; if it does not, it hangs.
constexpr absl::Duration kAnswerTimeout = absl::Seconds(60);
// One attempt to connect and authenticate; a server that is alive needs milliseconds.
constexpr absl::Duration kAttemptTimeout = absl::Seconds(10);

struct Link {
  UniqueFd fd;
  FrameReader reader;
  FrameWriter writer;
};

Nonce RandomNonce() {
  Nonce nonce;
  FillRandom(absl::MakeSpan(nonce));
  return nonce;
}

absl::StatusOr<Link> Authenticate(absl::string_view address, const JobKey& job, Rank rank, absl::Time deadline) {
  absl::StatusOr<UniqueFd> fd = ConnectTcp(address, deadline);
  if (!fd.ok()) return fd.status();

  // A forked child is another process.
  static const Nonce program = RandomNonce();
  ClientHello hello{.rank = rank, .size = job.size, .job = Sha256(job.job_id), .nonce = RandomNonce()};
  hello.process = Sha256(absl::StrCat(View(program), ::getpid()));
  const std::string client_hello = Encode(hello);
  if (absl::Status status = SendAll(fd->get(), client_hello, deadline); !status.ok()) return status;

  absl::StatusOr<std::string> reply = ReceiveExactly(fd->get(), kServerHelloBytes + kProofBytes, deadline);
  if (!reply.ok()) return reply.status();
  const absl::string_view server_hello = absl::string_view(*reply).substr(0, kServerHelloBytes);
  const std::optional<ServerHello> server = DecodeServerHello(server_hello);
  if (!server) return absl::PermissionDeniedError("what listens there is no Tutti store");
  const HandshakeKeys keys = DeriveKeys(job.secret, client_hello, server_hello);
  if (!SameMac(absl::string_view(*reply).substr(kServerHelloBytes), keys.server_proof)) {
    return absl::PermissionDeniedError("the server holds another job secret");
  }
  if (server->version != kStoreVersion) {
    return absl::FailedPreconditionError(absl::StrCat("the server speaks version ", server->version,
                                                      " of the store protocol, rank ", rank, " version ",
                                                      kStoreVersion));
  }
  if (absl::Status status = SendAll(fd->get(), View(keys.client_proof), deadline); !status.ok()) return status;

  Link link{*std::move(fd), FrameReader(keys.server_to_client), FrameWriter(keys.client_to_server)};
  while (true) {
    absl::StatusOr<std::optional<std::string>> body = link.reader.Next();
    if (!body.ok()) return body.status();
    if (body->has_value()) {
      absl::StatusOr<StoreResponse> welcome = ParseResponse(**body);
      if (!welcome.ok()) return welcome.status();
      if (welcome->code != absl::StatusCode::kOk) return absl::Status(welcome->code, welcome->text);
      return link;
    }
    absl::StatusOr<std::string> more = ReceiveSome(link.fd.get(), 4096, deadline);
    if (!more.ok()) return more.status();
    link.reader.Append(*more);
  }
}

// Any number of threads call; a thread of the store's own receives the answers.
class TcpStore final : public Store {
 public:
  TcpStore(std::string address, Link link)
      : address_(std::move(address)),
        fd_(std::move(link.fd)),
        writer_(std::move(link.writer)),
        receiver_([this, reader = std::move(link.reader)]() mutable { Receive(std::move(reader)); }) {}

  ~TcpStore() override {
    ::shutdown(fd_.get(), SHUT_RDWR);
    receiver_.join();
  }

  absl::Status Set(absl::string_view key, absl::string_view value) override {
    if (absl::Status status = CheckKeyAndValue(key, value); !status.ok()) return status;
    return Call({.op = StoreOp::kSet, .key = std::string(key), .value = std::string(value)}).status();
  }

  absl::StatusOr<std::string> Get(absl::string_view key, absl::Time deadline) override {
    if (absl::Status status = CheckKey(key); !status.ok()) return status;
    StoreRequest request{.op = StoreOp::kGet, .key = std::string(key)};
    request.wait = deadline > absl::Now();
    absl::StatusOr<StoreResponse> response =
        request.wait ? Call(std::move(request), deadline) : Call(std::move(request));
    if (!response.ok()) return response.status();
    return std::move(response->text);
  }

  absl::StatusOr<std::int64_t> Add(absl::string_view key, std::int64_t delta) override {
    if (absl::Status status = CheckKey(key); !status.ok()) return status;
    absl::StatusOr<StoreResponse> response = Call({.op = StoreOp::kAdd, .delta = delta, .key = std::string(key)});
    if (!response.ok()) return response.status();
    return response->sum;
  }

  absl::Status Delete(absl::string_view key) override {
    if (absl::Status status = CheckKey(key); !status.ok()) return status;
    return Call({.op = StoreOp::kDelete, .key = std::string(key)}).status();
  }

 private:
  absl::Status Lost(const absl::Status& why) const {
    return absl::UnavailableError(absl::StrCat("store server at ", address_, ": ", why.message()));
  }

  absl::StatusOr<StoreResponse> Call(StoreRequest request) {
    return Call(std::move(request), absl::Now() + kAnswerTimeout);
  }

  absl::StatusOr<StoreResponse> Call(StoreRequest request, absl::Time deadline) {
    std::optional<StoreResponse>* answer = nullptr;
    {
      const MutexLock lock(mutex_);
      if (!lost_.ok()) return lost_;
      request.id = next_id_++;
      auto& slot = answers_[request.id];
      slot = std::make_unique<std::optional<StoreResponse>>();
      answer = slot.get();  // stays where it is while the map grows
    }
    Send(request);
    {
      const MutexLock lock(mutex_);
      answered_.WaitUntil(mutex_, deadline,
                          [&]() TUTTI_REQUIRES(mutex_) { return answer->has_value() || !lost_.ok(); });
      const std::optional<StoreResponse> response = std::move(*answer);
      answers_.erase(request.id);
      if (response && response->code != absl::StatusCode::kOk) return absl::Status(response->code, response->text);
      if (response) return *response;
      if (!lost_.ok()) return lost_;
    }
    if (!request.wait) return Lost(absl::DeadlineExceededError("no answer in time"));
    Send({.op = StoreOp::kCancel, .id = request.id});
    return KeyNotSet(request.key);
  }

  void Send(const StoreRequest& request) {
    absl::Status status;
    {
      const MutexLock lock(write_mutex_);
      status = SendAll(fd_.get(), writer_.Seal(Encode(request)), absl::Now() + kAnswerTimeout);
    }
    if (!status.ok()) Lose(status);
  }

  void Lose(const absl::Status& why) {
    {
      const MutexLock lock(mutex_);
      if (lost_.ok()) lost_ = Lost(why);
    }
    ::shutdown(fd_.get(), SHUT_RDWR);
    answered_.NotifyAll();
  }

  void Receive(FrameReader reader) {
    absl::Status status;
    while (status.ok()) {
      absl::StatusOr<std::string> bytes = ReceiveSome(fd_.get(), 64 << 10, absl::InfiniteFuture());
      if (bytes.ok()) reader.Append(*bytes);
      status = bytes.ok() ? Dispatch(reader) : bytes.status();
    }
    Lose(status);
  }

  absl::Status Dispatch(FrameReader& reader) {
    while (true) {
      absl::StatusOr<std::optional<std::string>> body = reader.Next();
      if (!body.ok()) return body.status();
      if (!body->has_value()) return absl::OkStatus();
      absl::StatusOr<StoreResponse> response = ParseResponse(**body);
      if (!response.ok()) return response.status();
      const MutexLock lock(mutex_);
      const auto found = answers_.find(response->id);
      if (found == answers_.end()) continue;  // its Get has given up
      *found->second = *std::move(response);
      answered_.NotifyAll();
    }
  }

  const std::string address_;
  const UniqueFd fd_;
  Mutex write_mutex_;
  FrameWriter writer_ TUTTI_GUARDED_BY(write_mutex_);
  Mutex mutex_;
  Condition answered_;
  std::uint64_t next_id_ TUTTI_GUARDED_BY(mutex_) = kWelcome + 1;
  // Each until its caller has taken it, which happens under the mutex too.
  absl::flat_hash_map<std::uint64_t, std::unique_ptr<std::optional<StoreResponse>>> answers_ TUTTI_GUARDED_BY(mutex_);
  absl::Status lost_ TUTTI_GUARDED_BY(mutex_);
  std::thread receiver_;  // last: it uses all of the above
};

}  // namespace

absl::StatusOr<std::shared_ptr<Store>> TryTcpStore(absl::string_view address, const JobKey& job, Rank rank,
                                                   absl::Time deadline) {
  absl::StatusOr<Link> link = Authenticate(address, job, rank, std::min(deadline, absl::Now() + kAttemptTimeout));
  if (link.ok()) return std::make_shared<TcpStore>(std::string(address), *std::move(link));
  return absl::Status(link.status().code(), absl::StrCat("store server at ", address, ": ", link.status().message()));
}

absl::StatusOr<std::shared_ptr<Store>> ConnectTcpStore(absl::string_view address, const JobKey& job, Rank rank,
                                                       absl::Time deadline) {
  absl::Duration pause = absl::Milliseconds(1);
  while (true) {
    absl::StatusOr<std::shared_ptr<Store>> store = TryTcpStore(address, job, rank, deadline);
    if (!absl::IsUnavailable(store.status()) && !absl::IsDeadlineExceeded(store.status())) return store;
    if (absl::Now() + pause > deadline) {
      return absl::DeadlineExceededError(
          absl::StrCat("rank ", rank, " could not join in time. ", store.status().message()));
    }
    absl::SleepFor(pause);
    pause = std::min(2 * pause, absl::Milliseconds(100));
  }
}

}  // namespace tutti
