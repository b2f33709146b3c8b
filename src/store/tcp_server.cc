#include <array>
#include <deque>
#include <list>
#include <thread>
#include <utility>

#define ASIO_STANDALONE
#include <asio.hpp>

#include "absl/strings/str_cat.h"
#include "store/server_session.h"
#include "tutti/store.h"

namespace tutti {
namespace {

using asio::ip::tcp;

// Answers that a client may leave unread before it is dropped.
constexpr std::size_t kMaxUnsentBytes = 2 * kMaxFrameBytes;

std::string ToString(const tcp::endpoint& endpoint) {
  const std::string host = endpoint.address().to_string();
  return endpoint.address().is_v6() ? absl::StrCat("[", host, "]:", endpoint.port())
                                    : absl::StrCat(host, ":", endpoint.port());
}

// A session on a socket. Everything here runs in the server's one thread.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(tcp::socket socket, ServerTable& table)
      : socket_(std::move(socket)),
        deadline_(socket_.get_executor()),
        session_(table, [this](std::string bytes) { Send(std::move(bytes)); }) {}

  void Start(absl::Duration handshake_timeout) {
    asio::error_code ignored;
    socket_.set_option(tcp::no_delay(true), ignored);
    deadline_.expires_after(absl::ToChronoNanoseconds(handshake_timeout));
    deadline_.async_wait([self = shared_from_this()](const asio::error_code& error) {
      if (!error && !self->session_.authenticated()) self->Close();
    });
    Read();
  }

  void Close() {
    asio::error_code ignored;
    deadline_.cancel(ignored);
    // What has been written still reaches the client.
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
    if (!session_.Receive(bytes).ok()) return unsent_.empty() ? Close() : void(closing_ = true);
    if (session_.authenticated()) deadline_.cancel();
    Read();
  }

  void Send(std::string bytes) {
    unsent_bytes_ += bytes.size();
    unsent_.push_back(std::move(bytes));
    if (unsent_bytes_ > kMaxUnsentBytes) return Close();
    if (unsent_.size() == 1) Write();
  }

  void Write() {
    asio::async_write(socket_, asio::buffer(unsent_.front()),
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
  std::deque<std::string> unsent_;
  std::size_t unsent_bytes_ = 0;
  bool closing_ = false;
  ServerSession session_;
};

}  // namespace

class TcpStoreServer::Impl {
 public:
  Impl(const JobKey& job, const TcpStoreServerOptions& options)
      : options_(options), table_(job, options.one_process_per_rank) {}

  ~Impl() {
    if (!thread_.joinable()) return;
    asio::post(context_, [this] {
      asio::error_code ignored;
      acceptor_.close(ignored);
      retry_.cancel(ignored);
      for (const auto& connection : connections_) connection->Close();
    });
    thread_.join();
  }

  absl::Status Start() {
    asio::error_code error;
    const auto found = tcp::resolver(context_).resolve(options_.host, absl::StrCat(options_.port),
                                                       tcp::resolver::passive | tcp::resolver::numeric_service, error);
    if (error || found.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("store server: host '", options_.host, "' has no address: ", error.message()));
    }
    const tcp::endpoint endpoint = found.begin()->endpoint();
    acceptor_.open(endpoint.protocol(), error);
    if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor_.bind(endpoint, error);
    if (!error) acceptor_.listen(tcp::acceptor::max_listen_connections, error);
    if (error) {
      return absl::UnavailableError(
          absl::StrCat("store server: cannot listen on ", ToString(endpoint), ": ", error.message()));
    }
    address_ = ToString(acceptor_.local_endpoint());
    Accept();
    thread_ = std::thread([this] { context_.run(); });
    return absl::OkStatus();
  }

  const std::string& address() const { return address_; }

 private:
  void Accept() {
    acceptor_.async_accept([this](const asio::error_code& error, tcp::socket socket) {
      if (!acceptor_.is_open()) return;
      if (error) return AcceptLater();
      Admit(std::move(socket));
      Accept();
    });
  }

  // Out of descriptors, most likely: some will be free again when connections end.
  void AcceptLater() {
    retry_.expires_after(std::chrono::milliseconds(100));
    retry_.async_wait([this](const asio::error_code& error) {
      if (!error) Accept();
    });
  }

  void Admit(tcp::socket socket) {
    connections_.remove_if([](const auto& connection) { return !connection->open(); });
    // The oldest goes: a rank needs milliseconds for its handshake, so what has been here longest is no rank.
    int half_open = 0;
    std::shared_ptr<Connection> oldest;
    for (const auto& connection : connections_) {
      if (!connection->half_open()) continue;
      if (half_open++ == 0) oldest = connection;
    }
    if (half_open >= options_.max_half_open) oldest->Close();
    connections_.push_back(std::make_shared<Connection>(std::move(socket), table_));
    connections_.back()->Start(options_.handshake_timeout);
  }

  const TcpStoreServerOptions options_;
  ServerTable table_;
  asio::io_context context_{1};
  tcp::acceptor acceptor_{context_};
  asio::steady_timer retry_{context_};
  std::list<std::shared_ptr<Connection>> connections_;  // oldest first
  std::string address_;
  std::thread thread_;
};

TcpStoreServer::TcpStoreServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TcpStoreServer::~TcpStoreServer() = default;

std::string TcpStoreServer::address() const { return impl_->address(); }

absl::StatusOr<std::unique_ptr<TcpStoreServer>> TcpStoreServer::Start(const JobKey& job,
                                                                      const TcpStoreServerOptions& options) {
  if (job.size < 1) return absl::InvalidArgumentError(absl::StrCat("store server: size=", job.size, ", must be ≥ 1"));
  if (options.max_half_open < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("store server: max_half_open=", options.max_half_open, ", must be ≥ 1"));
  }
  auto impl = std::make_unique<Impl>(job, options);
  if (absl::Status status = impl->Start(); !status.ok()) return status;
  return std::unique_ptr<TcpStoreServer>(new TcpStoreServer(std::move(impl)));
}

}  // namespace tutti
