#include "tests/fuzz/store_session_fuzz.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "store/frame.h"
#include "store/handshake.h"
#include "store/message.h"
#include "store/server_session.h"

namespace tutti {
namespace {

const JobKey& Job() {
  static const JobKey& job = *new JobKey{JobSecret{}, "fuzz", 4};
  return job;
}

void Require(bool condition) {
  if (!condition) std::abort();
}

// Receives `bytes` in two pieces, cut at `cut`, since bytes may arrive in any pieces.
absl::Status ReceiveInPieces(ServerSession& session, absl::string_view bytes, std::size_t cut) {
  const std::size_t first = bytes.empty() ? 0 : cut % bytes.size();
  absl::Status status = session.Receive(bytes.substr(0, first));
  return status.ok() ? session.Receive(bytes.substr(first)) : status;
}

void Stranger(absl::string_view input) {
  ServerTables tables(Job(), {.one_process_per_rank = true});
  std::string sent;
  ServerSession session(tables, [&](const SessionBytes& bytes) { sent += bytes.head; });
  ReceiveInPieces(session, input, input.size() / 2).IgnoreError();
  Require(!session.authenticated());
  Require(sent.size() <= kServerHelloBytes + kProofBytes);
}

void MadRank(absl::string_view input) {
  ServerTables tables(Job(), {});
  std::string sent;
  ServerSession session(tables, [&](const SessionBytes& bytes) { sent += bytes.head; });
  const std::string hello = Encode(ClientHello{.rank = 1, .size = 4, .job = Sha256(Job().job_id)});
  Require(session.Receive(hello).ok());
  const HandshakeKeys keys = DeriveKeys(Job().secret, hello, sent.substr(0, kServerHelloBytes));
  Require(session.Receive(View(keys.client_proof)).ok() && session.authenticated());
  FrameWriter writer(keys.client_to_server);
  while (!input.empty()) {
    const auto length = static_cast<unsigned char>(input[0]);
    const absl::string_view body = input.substr(1, length);
    const absl::StatusOr<StoreRequest> request = ParseRequest(body);
    if (request.ok()) Require(Encode(*request) == body);
    const absl::Status status = ReceiveInPieces(session, writer.Seal(body), length);
    Require(status.ok() == request.ok());
    if (!status.ok()) return;
    input.remove_prefix(1 + body.size());
  }
}

void MadServer(absl::string_view input) {
  FrameReader sealed(Key{});
  sealed.Append(FrameWriter(Key{}).Seal(input));
  const auto body = sealed.Next();
  Require(body.ok() && body->has_value() && **body == input);
  const absl::StatusOr<StoreResponse> response = ParseResponse(input);
  if (response.ok()) Require(Encode(*response) == input);
  DecodeServerHello(input);
  FrameReader raw(Key{});
  raw.Append(input);
  while (true) {
    const auto next = raw.Next();
    if (!next.ok() || !next->has_value()) break;
  }
}

}  // namespace

void FuzzStoreSession(absl::string_view input) {
  if (input.empty()) return;
  const absl::string_view rest = input.substr(1);
  switch (static_cast<unsigned char>(input[0]) % 3) {
    case 0:
      return Stranger(rest);
    case 1:
      return MadRank(rest);
    default:
      return MadServer(rest);
  }
}

std::string StoreSessionSeed(int index) {
  switch (index) {
    case 0:
      return absl::StrCat(std::string(1, '\0'), Encode(ClientHello{.size = 4}), std::string(kProofBytes, 'p'));
    case 1: {
      std::string seed(1, '\1');
      for (const StoreRequest& request :
           {StoreRequest{.op = StoreOp::kGet, .wait = true, .id = 1, .key = "k"},
            StoreRequest{.op = StoreOp::kSet, .id = 2, .key = "k", .value = "12"},
            StoreRequest{.op = StoreOp::kAdd, .id = 3, .delta = -5, .key = "k"},
            StoreRequest{.op = StoreOp::kDelete, .id = 4, .key = "k"}, StoreRequest{.op = StoreOp::kCancel, .id = 1}}) {
        const std::string body = Encode(request);
        absl::StrAppend(&seed, std::string(1, static_cast<char>(body.size())), body);
      }
      return seed;
    }
    case 2:
      return absl::StrCat("\2", Encode(StoreResponse{.id = 1, .sum = 3, .text = "value"}));
    default:
      return absl::StrCat("\2", FrameWriter(Key{}).Seal("body"));
  }
}

}  // namespace tutti
