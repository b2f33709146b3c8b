#include "store/server_session.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "store/limits.h"

namespace tutti {
namespace {

// The most Gets of one client that may wait; a client that makes more is in error.
constexpr int kMaxWaiting = 4096;

StoreResponse Failure(std::uint64_t id, const absl::Status& status) {
  return {.id = id, .code = status.code(), .text = std::string(status.message())};
}

StoreResponse Gone(Rank rank) { return {.code = absl::StatusCode::kUnavailable, .sum = rank}; }

}  // namespace

void ServerTable::Enter(ServerSession& session) {
  for (const auto& [rank, sessions] : joined_sessions_) {
    if (sessions == 0) session.Answer(Gone(rank));
  }
  sessions_.insert(&session);
}

bool ServerTable::AllAreGone(int size) const {
  return joined_sessions_.size() >= static_cast<std::size_t>(size) &&
         std::all_of(joined_sessions_.begin(), joined_sessions_.end(),
                     [](const auto& entry) { return entry.second == 0; });
}

void ServerTable::TellAll(const StoreResponse& news) {
  for (ServerSession* session : sessions_) session->Answer(news);
}

void ServerTable::Join(ServerSession& session) {
  if (session.joined_as) return;
  session.joined_as = session.rank();
  const auto [sessions, is_new] = joined_sessions_.try_emplace(session.rank(), 0);
  if (++sessions->second == 1 && !is_new) TellAll({.sum = session.rank()});
}

void ServerTable::Put(const std::string& key, std::string value) {
  const auto stored = std::make_shared<const std::string>(std::move(value));
  values_[key] = stored;
  const auto found = waiters_.find(key);
  if (found == waiters_.end()) return;
  const std::vector<Waiter> waiters = std::move(found->second);
  waiters_.erase(found);
  for (const Waiter& waiter : waiters) {
    --waiter.session->waiting;
    waiter.session->Answer(waiter.id, stored);
  }
}

void ServerTable::Cancel(ServerSession& session, std::uint64_t id) {
  for (auto& [key, waiters] : waiters_) {
    session.waiting -= static_cast<int>(
        std::erase_if(waiters, [&](const Waiter& waiter) { return waiter.session == &session && waiter.id == id; }));
  }
  absl::erase_if(waiters_, [](const auto& entry) { return entry.second.empty(); });
}

void ServerTable::RankHasEnded(Rank rank) {
  if (joined_sessions_.try_emplace(rank, 0).second) TellAll(Gone(rank));
}

void ServerTable::Leave(ServerSession& session) {
  for (auto& [key, waiters] : waiters_) {
    std::erase_if(waiters, [&](const Waiter& waiter) { return waiter.session == &session; });
  }
  absl::erase_if(waiters_, [](const auto& entry) { return entry.second.empty(); });
  sessions_.erase(&session);
  if (const std::optional<Rank> rank = std::exchange(session.joined_as, std::nullopt)) {
    if (--joined_sessions_[*rank] == 0) TellAll(Gone(*rank));
  }
}

void ServerTable::Handle(ServerSession& session, StoreRequest request) {
  Join(session);
  if (request.op == StoreOp::kCancel) return Cancel(session, request.id);
  if (absl::Status status = CheckKeyAndValue(request.key, request.value); !status.ok()) {
    return session.Answer(Failure(request.id, status));
  }
  switch (request.op) {
    case StoreOp::kSet:
      session.Answer({.id = request.id});
      return Put(request.key, std::move(request.value));
    case StoreOp::kGet: {
      if (const auto found = values_.find(request.key); found != values_.end()) {
        return session.Answer(request.id, found->second);
      }
      if (!request.wait) return session.Answer(Failure(request.id, NoSuchKey(request.key)));
      if (session.waiting == kMaxWaiting) {
        return session.Answer(Failure(
            request.id, absl::ResourceExhaustedError(absl::StrCat("more than ", kMaxWaiting, " Gets wait at once"))));
      }
      ++session.waiting;
      waiters_[request.key].push_back({&session, request.id});
      return;
    }
    case StoreOp::kAdd: {
      const auto found = values_.find(request.key);
      absl::StatusOr<std::int64_t> sum =
          AddToValue(request.key, found == values_.end() ? "" : absl::string_view(*found->second), request.delta);
      if (!sum.ok()) return session.Answer(Failure(request.id, sum.status()));
      session.Answer({.id = request.id, .sum = *sum});
      return Put(request.key, absl::StrCat(*sum));
    }
    case StoreOp::kDelete:
      values_.erase(request.key);
      return session.Answer({.id = request.id});
    case StoreOp::kCancel:
      return;
  }
}

ServerTables::ServerTables(const JobKey& job, const TcpStoreServerOptions& options)
    : job_(job),
      one_process_per_rank_(options.one_process_per_rank),
      one_table_per_program_(options.one_table_per_program),
      serving_rank_(options.serving_rank ? *options.serving_rank : kNoRank) {}

absl::StatusOr<ServerTable*> ServerTables::TableOf(const ClientHello& client) {
  if (absl::Status status = CheckClient(client, job_); !status.ok()) return status;
  std::vector<Nonce>& processes = processes_[client.rank];
  const auto known = std::find(processes.begin(), processes.end(), client.process);
  const auto program = static_cast<std::size_t>(known - processes.begin());
  if (known == processes.end() && (one_table_per_program_ || processes.empty())) processes.push_back(client.process);
  if (one_process_per_rank_ && program > 0) {
    return absl::AlreadyExistsError(absl::StrCat("another process has joined as rank ", client.rank));
  }
  if (!one_table_per_program_) return &tables_.front();
  while (tables_.size() <= program) {
    ServerTable& next = tables_.emplace_back();
    for (const Rank rank : ended_) next.RankHasEnded(rank);
  }
  return &tables_[program];
}

absl::StatusOr<ServerTable*> ServerTables::Admit(ServerSession& session, const ClientHello& client) {
  absl::StatusOr<ServerTable*> table = TableOf(client);
  if (!table.ok()) {
    session.Answer(Failure(kUnasked, table.status()));
    return table;
  }
  session.Answer({.sum = serving_rank_});
  (*table)->Enter(session);
  return table;
}

void ServerTables::Leave(ServerSession& session, ServerTable& table) {
  table.Leave(session);
  if (one_table_per_program_ && table.AllAreGone(job_.size)) table.ForgetValues();
}

void ServerTables::RankHasEnded(Rank rank) {
  ended_.insert(rank);
  for (ServerTable& table : tables_) table.RankHasEnded(rank);
}

void ServerTables::Close() {
  for (ServerTable& table : tables_) table.Close();
}

ServerSession::ServerSession(ServerTables& tables, std::function<void(SessionBytes)> send)
    : tables_(tables), send_(std::move(send)) {}

ServerSession::~ServerSession() { Close(); }

void ServerSession::Close() {
  if (ServerTable* const table = std::exchange(table_, nullptr)) tables_.Leave(*this, *table);
}

absl::Status ServerSession::Receive(absl::string_view bytes) {
  // Before a client is authenticated, no more of the client's bytes are kept than its next handshake message has.
  if (!authenticated()) {
    const std::size_t owed = (client_hello_.empty() ? kClientHelloBytes : kProofBytes) - handshake_.size();
    const absl::string_view now = bytes.substr(0, owed);
    absl::StrAppend(&handshake_, now);
    if (now.size() < owed) return absl::OkStatus();
    absl::Status status = client_hello_.empty() ? TakeHello() : TakeProof();
    if (!status.ok()) return status;
    return Receive(bytes.substr(owed));
  }
  reader_->Append(bytes);
  while (true) {
    absl::StatusOr<std::optional<std::string>> body = reader_->Next();
    if (!body.ok()) return body.status();
    if (!body->has_value()) return absl::OkStatus();
    absl::StatusOr<StoreRequest> request = ParseRequest(**body);
    if (!request.ok()) return request.status();
    table_->Handle(*this, *std::move(request));
  }
}

absl::Status ServerSession::TakeHello() {
  client_hello_ = std::exchange(handshake_, {});
  if (!DecodeClientHello(client_hello_))
    return absl::UnauthenticatedError("the connecting program is not a client of a Tutti store");
  ServerHello hello;
  FillRandom(absl::MakeSpan(hello.nonce));
  const std::string encoded = Encode(hello);
  keys_ = DeriveKeys(tables_.job().secret, client_hello_, encoded);
  send_({absl::StrCat(encoded, View(keys_->server_proof))});
  return absl::OkStatus();
}

absl::Status ServerSession::TakeProof() {
  if (!SameMac(handshake_, keys_->client_proof))
    return absl::UnauthenticatedError("the connecting client does not hold the job secret");
  reader_.emplace(keys_->client_to_server);
  writer_.emplace(keys_->server_to_client);
  const ClientHello client = *DecodeClientHello(client_hello_);
  rank_ = client.rank;
  const absl::StatusOr<ServerTable*> table = tables_.Admit(*this, client);
  if (table.ok()) table_ = *table;
  return table.status();
}

}  // namespace tutti
