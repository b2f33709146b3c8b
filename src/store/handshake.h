// The handshake of the TCP store: three messages of fixed size, after which each side knows that the other side holds
// the job secret, and both share keys that no other connection has.
//
//   client → server   ClientHello   magic, version, rank, size, hash of the job id, the process, client nonce
//   server → client   ServerHello   magic, version, server nonce, proof over both hellos
//   client → server   ClientProof   proof over both hellos
//
// Only the magic of a hello is acted upon before the proof of its sender has been checked.
#ifndef TUTTI_STORE_HANDSHAKE_H_
#define TUTTI_STORE_HANDSHAKE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "store/mac.h"
#include "tutti/store.h"

namespace tutti {

inline constexpr std::uint32_t kStoreVersion = 3;
inline constexpr std::size_t kClientHelloBytes = 8 + 3 * 4 + 3 * 32;
inline constexpr std::size_t kServerHelloBytes = 8 + 4 + 32;  // without the proof that follows it
inline constexpr std::size_t kProofBytes = 32;

struct ClientHello {
  std::uint32_t version = kStoreVersion;
  std::int32_t rank = 0;
  std::int32_t size = 1;
  std::array<std::uint8_t, 32> job{};  // Sha256(job_id)
  Nonce process{};                     // random, equal for all connections of one process
  Nonce nonce{};
};

struct ServerHello {
  std::uint32_t version = kStoreVersion;
  Nonce nonce{};
};

std::string Encode(const ClientHello& hello);
std::string Encode(const ServerHello& hello);
// Decode a hello; nullopt when the length or the magic is wrong.
std::optional<ClientHello> DecodeClientHello(absl::string_view bytes);
std::optional<ServerHello> DecodeServerHello(absl::string_view bytes);

// The proofs and keys that the secret yields for two hellos, as they were on the wire.
struct HandshakeKeys {
  Mac server_proof;
  Mac client_proof;
  Key client_to_server;
  Key server_to_client;
};
HandshakeKeys DeriveKeys(const JobSecret& secret, absl::string_view client_hello, absl::string_view server_hello);

// Whether a client that has proved that it holds the secret belongs to this job: FailedPrecondition names what differs.
absl::Status CheckClient(const ClientHello& client, const JobKey& job);

}  // namespace tutti

#endif  // TUTTI_STORE_HANDSHAKE_H_
