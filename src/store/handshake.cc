#include "store/handshake.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "store/byte_order.h"

namespace tutti {
namespace {

constexpr absl::string_view kClientMagic = "TUTTIcli";
constexpr absl::string_view kServerMagic = "TUTTIsrv";

bool TakeMagic(absl::string_view& bytes, absl::string_view magic) {
  if (bytes.substr(0, magic.size()) != magic) return false;
  bytes.remove_prefix(magic.size());
  return true;
}

void TakeArray(absl::string_view& bytes, std::array<std::uint8_t, 32>& array) {
  std::copy_n(bytes.begin(), array.size(), array.begin());
  bytes.remove_prefix(array.size());
}

}  // namespace

std::string Encode(const ClientHello& hello) {
  std::string out(kClientMagic);
  AppendInteger(hello.version, out);
  AppendInteger(hello.rank, out);
  AppendInteger(hello.size, out);
  absl::StrAppend(&out, View(hello.job), View(hello.process), View(hello.nonce));
  return out;
}

std::string Encode(const ServerHello& hello) {
  std::string out(kServerMagic);
  AppendInteger(hello.version, out);
  absl::StrAppend(&out, View(hello.nonce));
  return out;
}

std::optional<ClientHello> DecodeClientHello(absl::string_view bytes) {
  ClientHello hello;
  if (bytes.size() != kClientHelloBytes || !TakeMagic(bytes, kClientMagic)) return std::nullopt;
  TakeInteger(bytes, hello.version);
  TakeInteger(bytes, hello.rank);
  TakeInteger(bytes, hello.size);
  TakeArray(bytes, hello.job);
  TakeArray(bytes, hello.process);
  TakeArray(bytes, hello.nonce);
  return hello;
}

std::optional<ServerHello> DecodeServerHello(absl::string_view bytes) {
  ServerHello hello;
  if (bytes.size() != kServerHelloBytes || !TakeMagic(bytes, kServerMagic)) return std::nullopt;
  TakeInteger(bytes, hello.version);
  TakeArray(bytes, hello.nonce);
  return hello;
}

HandshakeKeys DeriveKeys(const JobSecret& secret, absl::string_view client_hello, absl::string_view server_hello) {
  // Labels differ, so that no proof can serve as another proof or as a key; both hellos have a fixed size.
  const auto derive = [&](absl::string_view label) { return Hmac(secret.bytes, {label, client_hello, server_hello}); };
  return {derive("tutti store: server proof\n"), derive("tutti store: client proof\n"),
          derive("tutti store: client to server\n"), derive("tutti store: server to client\n")};
}

absl::Status CheckClient(const ClientHello& client, const JobKey& job) {
  if (client.version != kStoreVersion) {
    return absl::FailedPreconditionError(absl::StrCat("rank ", client.rank, " speaks version ", client.version,
                                                      " of the store protocol, the server version ", kStoreVersion));
  }
  if (client.job != Sha256(job.job_id)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "rank ", client.rank, " is of another job than the store server, which serves job '", job.job_id, "'"));
  }
  if (client.size != job.size) {
    return absl::FailedPreconditionError(
        absl::StrCat("rank ", client.rank, " has world size ", client.size, ", the store server has ", job.size));
  }
  if (client.rank < 0 || client.rank >= job.size) {
    return absl::FailedPreconditionError(
        absl::StrCat("rank ", client.rank, " is not in a world of ", job.size, " ranks"));
  }
  return absl::OkStatus();
}

}  // namespace tutti
