#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <deque>
#include <list>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#define ASIO_STANDALONE
#include <asio.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/descriptors.h"
#include "base/fork.h"
#include "base/keep_alive.h"
#include "base/standard_descriptors.h"
#include "store/server_session.h"
#include "store/socket.h"
#include "tutti/store.h"

namespace tutti {
namespace {

using asio::ip::tcp;

// The most bytes of answers that a client may leave unread before the server drops it.
constexpr std::size_t kMaxUnsentBytes = 2 * kMaxFrameBytes;

std::string ToString(const tcp::endpoint& endpoint) {
  return JoinAddress(endpoint.address().to_string(), absl::StrCat(endpoint.port()));
}

// What the system refuses: `what` is "cannot …".
absl::Status Refused(absl::string_view what, const std::error_code& error) {
  const std::string message = absl::StrCat("store server: ", what, ": ", error.message());
  if (error.value() == EADDRINUSE) return absl::AlreadyExistsError(message);
  const absl::Status shortage = CheckShortage(error.value(), absl::StrCat("store server: ", what));
  return shortage.ok() ? absl::UnavailableError(message) : shortage;
}

// A session on a socket. All functions run in the server's one thread.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(tcp::socket socket, ServerTables& tables)
      : socket_(std::move(socket)),
        deadline_(socket_.get_executor()),
        session_(tables, [this](SessionBytes bytes) { Send(std::move(bytes)); }) {}

  void Start(absl::Duration handshake_timeout) {
    asio::error_code ignored;
    socket_.set_option(tcp::no_delay(true), ignored);
    KeepAlive(socket_.native_handle());
    // The timeout is bounded, because asio adds it to the present time without a check for overflow.
    deadline_.expires_after(absl::ToChronoNanoseconds(std::min(handshake_timeout, absl::Hours(24))));
    deadline_.async_wait([self = shared_from_this()](const asio::error_code& error) {
      if (!error && !self->session_.authenticated()) self->Close();
    });
    Read();
  }

  void Close() {
    if (!open()) return;
    session_.Close();
    asio::error_code ignored;
    deadline_.cancel(ignored);
    ForgetInChildren(socket_.native_handle());
    // Answers that were written still reach the client.
    socket_.shutdown(tcp::socket::shutdown_both, ignored);
    socket_.close(ignored);
  }

  bool open() const { return socket_.is_open(); }
  bool half_open() const { return open() && !session_.authenticated(); }

 private:
  void Read() {
    socket_.async_read_some(asio::buffer(input_),
                            [self = shared_from_this()](const asio::error_code& error, std::size_t bytes) {
                              if (error || !self->open()) return self->Close();
                              self->Received({self->input_.data(), bytes});
                            });
  }

  void Received(absl::string_view bytes) {
    if (!session_.Receive(bytes).ok()) {
      session_.Close();
      return unsent_.empty() ? Close() : void(closing_ = true);
    }
    if (session_.authenticated()) deadline_.cancel();
    Read();
  }

  void Send(SessionBytes bytes) {
    if (overflowed_) return;
    unsent_bytes_ += bytes.size();
    unsent_.push_back(std::move(bytes));
    if (unsent_bytes_ > kMaxUnsentBytes) {
      overflowed_ = true;
      asio::post(socket_.get_executor(), [self = shared_from_this()] { self->Close(); });
    } else if (unsent_.size() == 1) {
      Write();
    }
  }

  void Write() {
    const SessionBytes& next = unsent_.front();
    const auto value = next.value != nullptr ? asio::buffer(*next.value) : asio::const_buffer();
    asio::async_write(socket_, std::array{asio::const_buffer(asio::buffer(next.head)), value},
                      [self = shared_from_this()](const asio::error_code& error, std::size_t) {
                        if (error || !self->open()) return self->Close();
                        self->unsent_bytes_ -= self->unsent_.front().size();
                        self->unsent_.pop_front();
                        if (!self->unsent_.empty()) return self->Write();
                        if (self->closing_) self->Close();
                      });
  }

  tcp::socket socket_;
  asio::steady_timer deadline_;
  std::array<char, 64 << 10> input_;
  std::deque<SessionBytes> unsent_;
  std::size_t unsent_bytes_ = 0;
  bool closing_ = false;     // the connection closes when all has been sent
  bool overflowed_ = false;  // the connection closes at once; nothing is sent any more
  ServerSession session_;
};

}  // namespace

class TcpStoreServer::Impl {
 public:
  // Throws std::system_error where asio gets no descriptors for its event loop.
  Impl(const JobKey& job, const TcpStoreServerOptions& options) : options_(options), tables_(job, options) {}

  ~Impl() {
    if (!thread_.joinable()) {  // Start has failed
      StopListening();
      return;
    }
    asio::post(context_, [this] {
      tables_.Close();
      StopListening();
      asio::error_code ignored;
      retry_.cancel(ignored);
      for (const auto& connection : connections_) connection->Close();
    });
    thread_.join();
  }

  // For a job of `size` ranks, each of which makes a connection.
  absl::Status Start(int size) {
    // Besides a connection of each rank: the socket that listens, and the client of a rank that serves.
    const std::size_t descriptors = static_cast<std::size_t>(size) + 2;
    const std::string what = absl::StrCat("the store server of ", size, size == 1 ? " rank" : " ranks");
    if (absl::Status status = NeedDescriptors(descriptors, what); !status.ok()) return status;
    asio::error_code error;
    const auto found = tcp::resolver(context_).resolve(options_.host, absl::StrCat(options_.port),
                                                       tcp::resolver::passive | tcp::resolver::numeric_service, error);
    if (error || found.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("store server: host '", options_.host, "' has no address: ", error.message()));
    }
    const tcp::endpoint endpoint = found.begin()->endpoint();
    Listen(endpoint.protocol(), error);
    if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(tcp::acceptor::max_listen_connections, error);
    if (error) return Refused(absl::StrCat("cannot listen on ", ToString(endpoint)), error);
    protocol_ = endpoint.protocol();
    address_ = ToString(acceptor_.local_endpoint());
    Accept();
    try {
      thread_ = std::thread([this] { context_.run(); });
    } catch (const std::system_error& no_thread) {
      return absl::ResourceExhaustedError(
          absl::StrCat("store server: cannot start its thread: ", no_thread.what(), "; raise the limit (ulimit -u)"));
    }
    return absl::OkStatus();
  }

  const std::string& address() const { return address_; }

  void RankHasEnded(Rank rank) {
    asio::post(context_, [this, rank] { tables_.RankHasEnded(rank); });
  }

  const MakerProcess maker;

 private:
  // Opens the listening socket itself, because asio's are not close-on-exec: every program that this process starts
  // would inherit them.
  void Listen(const tcp& protocol, asio::error_code& error) {
    UniqueFd fd(::socket(protocol.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd.valid()) {
      error.assign(errno, asio::system_category());
      return;
    }
    acceptor_.assign(protocol, fd.get(), error);
    if (!error) CloseInChildren(fd.Release());
  }

  void StopListening() {
    if (!acceptor_.is_open()) return;
    ForgetInChildren(acceptor_.native_handle());
    asio::error_code ignored;
    acceptor_.close(ignored);
  }

  void Accept() {
    acceptor_.async_wait(tcp::acceptor::wait_read, [this](const asio::error_code& error) {
      if (!acceptor_.is_open()) return;
      UniqueFd fd(error ? -1 : ::accept4(acceptor_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!fd.valid() && errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) return AcceptLater(errno);
      if (fd.valid()) Admit(std::move(fd));
      Accept();
    });
  }

  // Accepts again a moment later: descriptors have most likely run out (`why`: EMFILE), and some will be free when
  // connections end. Says so on stderr the first time, because ranks wait meanwhile without a word.
  void AcceptLater(int why) {
    if (!std::exchange(told_, true)) {
      const absl::Status refused = Refused("cannot accept a connection yet", {why, std::system_category()});
      const std::string line = absl::StrCat("tutti: ", address_, ": ", refused.message(), "\n");
      std::fputs(line.c_str(), stderr);
    }
    retry_.expires_after(std::chrono::milliseconds(100));
    retry_.async_wait([this](const asio::error_code& error) {
      if (!error) Accept();
    });
  }

  void Admit(UniqueFd fd) {
    asio::error_code error;
    tcp::socket socket(context_);
    socket.assign(protocol_, fd.get(), error);
    if (error) return;
    CloseInChildren(fd.Release());
    connections_.remove_if([](const auto& connection) { return !connection->open(); });
    // Drops the oldest of too many half-open connections, which is most likely no rank of the job: all ranks may be in
    // their handshakes at once, each in one.
    int half_open = 0;
    std::shared_ptr<Connection> oldest;
    for (const auto& connection : connections_) {
      if (!connection->half_open()) continue;
      if (half_open++ == 0) oldest = connection;
    }
    if (half_open >= tables_.job().size + options_.max_half_open) oldest->Close();
    connections_.push_back(std::make_shared<Connection>(std::move(socket), tables_));
    connections_.back()->Start(options_.handshake_timeout);
  }

  const TcpStoreServerOptions options_;
  ServerTables tables_;
  asio::io_context context_{1};
  tcp::acceptor acceptor_{context_};
  tcp protocol_ = tcp::v4();
  asio::steady_timer retry_{context_};
  bool told_ = false;                                   // that a connection cannot be accepted yet
  std::list<std::shared_ptr<Connection>> connections_;  // oldest first
  std::string address_;
  std::thread thread_;
};

TcpStoreServer::TcpStoreServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TcpStoreServer::~TcpStoreServer() {
  if (!impl_->maker.is_this()) LeaveToParent(std::move(impl_));
}

std::string TcpStoreServer::address() const { return impl_->address(); }

void TcpStoreServer::RankHasEnded(Rank rank) { impl_->RankHasEnded(rank); }

absl::StatusOr<std::unique_ptr<TcpStoreServer>> TcpStoreServer::Start(const JobKey& job,
                                                                      const TcpStoreServerOptions& options) {
  if (job.size < 1) return absl::InvalidArgumentError(absl::StrCat("store server: size=", job.size, ", must be ≥ 1"));
  if (options.max_half_open < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("store server: max_half_open=", options.max_half_open, ", must be ≥ 1"));
  }
  HoldStandardDescriptors();
  std::unique_ptr<Impl> impl;
  try {
    impl = std::make_unique<Impl>(job, options);
  } catch (const std::system_error& error) {
    return Refused("cannot make its event loop", error.code());
  }
  if (absl::Status status = impl->Start(job.size); !status.ok()) return status;
  return std::unique_ptr<TcpStoreServer>(new TcpStoreServer(std::move(impl)));
}

}  // namespace tutti
