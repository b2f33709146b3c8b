#include "store/client_session.h"

#include <sys/socket.h>

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "store/limits.h"
#include "store/socket.h"

namespace tutti {
namespace {

// The time to send a few bytes that the server can do without. A server that does not take them in this time has
// stopped reading.
constexpr absl::Duration kCancelLimit = absl::Milliseconds(100);

}  // namespace

ClientSession::ClientSession(ClientLink link)
    : address_(std::move(link.address)),
      serving_rank_(link.serving_rank),
      fd_(std::move(link.fd)),
      writer_(std::move(link.writer)),
      receiver_([this, reader = std::move(link.reader)]() mutable { Receive(std::move(reader)); }) {}

ClientSession::~ClientSession() {
  ::shutdown(fd_.get(), SHUT_RDWR);
  receiver_.join();
}

absl::StatusOr<StoreResponse> ClientSession::Call(StoreRequest request, std::int64_t end_ns) {
  absl::StatusOr<Answer*> answer = Begin(request, end_ns);
  if (!answer.ok()) return answer.status();
  const MutexLock lock(mutex_);
  changed_.WaitUntil(mutex_, end_ns, [&]() TUTTI_REQUIRES(mutex_) { return (*answer)->has_value() || !lost_.ok(); });
  Answer response = Take(request, **answer);
  if (!response) {
    if (!lost_.ok()) return lost_;
    return absl::DeadlineExceededError(absl::StrCat("store server at ", address_, ": no answer in time, for key '",
                                                    absl::CHexEscape(request.key), "'"));
  }
  if (response->code != absl::StatusCode::kOk) return absl::Status(response->code, response->text);
  return *std::move(response);
}

absl::StatusOr<std::string> ClientSession::Await(absl::string_view key, std::int64_t end_ns, Store::OnGone on_gone) {
  StoreRequest request{.op = StoreOp::kGet, .wait = true, .key = std::string(key)};
  absl::StatusOr<Answer*> answer = Begin(request, end_ns);
  if (!answer.ok()) return answer.status();
  absl::Status given_up;
  std::uint64_t told = 0;
  bool in_time = true;
  while (given_up.ok()) {
    std::optional<Rank> gone;
    {
      const MutexLock lock(mutex_);
      in_time = changed_.WaitUntil(mutex_, end_ns, [&]() TUTTI_REQUIRES(mutex_) {
        return (*answer)->has_value() || !lost_.ok() || told < events_;
      });
      if ((*answer)->has_value() || !lost_.ok()) {
        Answer response = Take(request, **answer);
        if (!response) return lost_;
        if (response->code != absl::StatusCode::kOk) return absl::Status(response->code, response->text);
        return std::move(response->text);
      }
      if (in_time) {
        gone = NextGone(told);
      } else {
        given_up = KeyNotSet(key);
      }
    }
    if (gone) given_up = on_gone(*gone);
  }
  {
    const MutexLock lock(mutex_);
    Take(request, **answer);
  }
  Cancel(request.id);
  if (!in_time) return given_up;
  // The key is looked up once more: its value may have been set before the end of the rank for which the Get was given
  // up.
  absl::StatusOr<StoreResponse> now = Call({.op = StoreOp::kGet, .key = std::string(key)}, end_ns);
  if (now.ok()) return std::move(now->text);
  return given_up;
}

absl::StatusOr<ClientSession::Answer*> ClientSession::Begin(StoreRequest& request, std::int64_t end_ns) {
  Answer* answer = nullptr;
  {
    const MutexLock lock(mutex_);
    if (!lost_.ok()) return lost_;
    request.id = next_id_++;
    auto& slot = answers_[request.id];
    slot = std::make_unique<Answer>();
    answer = slot.get();
  }
  absl::Status sent = Send(request, end_ns);
  if (sent.ok()) return answer;
  const MutexLock lock(mutex_);
  Take(request, *answer);
  return sent;
}

ClientSession::Answer ClientSession::Take(const StoreRequest& request, Answer& answer) {
  Answer taken = std::move(answer);
  answers_.erase(request.id);
  return taken;
}

absl::Status ClientSession::Send(const StoreRequest& request, std::int64_t end_ns) {
  {
    const MutexLock lock(mutex_);
    const bool my_turn =
        changed_.WaitUntil(mutex_, end_ns, [&]() TUTTI_REQUIRES(mutex_) { return !writing_ || !lost_.ok(); });
    if (!lost_.ok()) return lost_;
    if (!my_turn) return NotSent(request);
    writing_ = true;
  }
  // A request is sealed only when the connection takes bytes: a sealed frame has used a number, and cannot be left out.
  const bool can_begin = WaitToSend(fd_.get(), end_ns).ok();
  absl::Status status = can_begin ? SendAll(fd_.get(), writer_.Seal(Encode(request)), end_ns) : NotSent(request);
  {
    const MutexLock lock(mutex_);
    writing_ = false;
  }
  changed_.NotifyAll();
  // A frame that was sent in part cannot be taken back: the connection cannot be used any more.
  if (status.ok() || !can_begin) return status;
  const MutexLock lock(mutex_);
  if (unsent_.ok()) unsent_ = status;
  ::shutdown(fd_.get(), SHUT_RDWR);
  // The receiver ends soon, but first it takes in what the server has said: perhaps news of the rank whose end was the
  // cause.
  changed_.WaitUntil(mutex_, kNeverNanos, [&]() TUTTI_REQUIRES(mutex_) { return !lost_.ok(); });
  if (!absl::IsDeadlineExceeded(status)) return lost_;
  return absl::DeadlineExceededError(absl::StrCat("store server at ", address_, ": ", status.message()));
}

absl::Status ClientSession::NotSent(const StoreRequest& request) const {
  return absl::DeadlineExceededError(absl::StrCat("store server at ", address_,
                                                  ": the server does not read; the request for key '",
                                                  absl::CHexEscape(request.key), "' was not sent in time"));
}

void ClientSession::Cancel(std::uint64_t id) {
  // The error is ignored: on a lost connection there is nothing to cancel, and an answer to a Get that was not
  // cancelled is dropped.
  Send({.op = StoreOp::kCancel, .id = id}, NanosIn(kCancelLimit)).IgnoreError();
}

std::optional<Rank> ClientSession::NextGone(std::uint64_t& told) {
  std::optional<Rank> first;
  std::uint64_t event = events_;
  for (const auto& [rank, its_event] : gone_) {
    if (its_event <= told || its_event > event) continue;
    first = rank;
    event = its_event;
  }
  told = event;
  return first;
}

void ClientSession::Receive(FrameReader reader) {
  // Frames that arrived with the welcome are in the reader already.
  absl::Status status = Dispatch(reader);
  while (status.ok()) {
    absl::StatusOr<std::string> bytes = ReceiveSome(fd_.get(), 64 << 10, kNeverNanos);
    if (bytes.ok()) reader.Append(*bytes);
    status = bytes.ok() ? Dispatch(reader) : bytes.status();
  }
  Lose(status);
}

absl::Status ClientSession::Dispatch(FrameReader& reader) {
  while (true) {
    absl::StatusOr<std::optional<std::string>> body = reader.Next();
    if (!body.ok()) return body.status();
    if (!body->has_value()) return absl::OkStatus();
    absl::StatusOr<StoreResponse> response = ParseResponse(**body);
    if (!response.ok()) return response.status();
    {
      const MutexLock lock(mutex_);
      if (response->id == kUnasked) {
        Hear(*response);
      } else if (const auto found = answers_.find(response->id); found != answers_.end()) {
        *found->second = *std::move(response);
      }  // otherwise the caller of the request has given up
    }
    changed_.NotifyAll();
  }
}

void ClientSession::Hear(const StoreResponse& news) {
  const auto rank = static_cast<Rank>(news.sum);
  if (news.code == absl::StatusCode::kOk) {
    gone_.erase(rank);
  } else {
    gone_[rank] = ++events_;
  }
}

void ClientSession::Lose(const absl::Status& why) {
  {
    const MutexLock lock(mutex_);
    lost_ = Lost(unsent_.ok() ? why : unsent_);
  }
  ::shutdown(fd_.get(), SHUT_RDWR);
  changed_.NotifyAll();
}

// When the serving rank has ended, an earlier end of another rank was perhaps the cause, and that rank is named first.
absl::Status ClientSession::Lost(const absl::Status& why) const {
  std::string text = serving_rank_ ? absl::StrCat("rank ", *serving_rank_, " is gone, which served the store at ")
                                   : "store server at ";
  absl::StrAppend(&text, address_, ": ", why.message());
  std::optional<Rank> first;
  for (const auto& [rank, event] : gone_) {
    if (rank != serving_rank_ && (!first || event < gone_.at(*first))) first = rank;
  }
  if (first) text = absl::StrCat("rank ", *first, " is gone, it has died or left; then ", text);
  return absl::UnavailableError(text);
}

}  // namespace tutti
