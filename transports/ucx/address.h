// The address of a rank, which it gives to its peers before they connect: the blob behind Transport::Address.
#ifndef TUTTI_TRANSPORTS_UCX_ADDRESS_H_
#define TUTTI_TRANSPORTS_UCX_ADDRESS_H_

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tutti::ucx {

using Nonce = std::array<char, 32>;

// Draws random bytes that nobody can guess.
Nonce NewNonce();
// Compares in a time that does not depend on where the nonces differ, which would help to guess a nonce.
bool Equal(const Nonce& a, const Nonce& b);

struct PeerAddress {
  std::string node;    // ranks with equal names map each other's memory
  uid_t user = 0;      // the user that the rank runs as
  std::string socket;  // name of the rank's socket in the abstract namespace
  Nonce nonce = {};    // a secret that a peer must present to that socket
  std::int64_t region_bytes = 0;
  std::string container;  // ranks of a node with equal containers reach each other over UCX
  std::string worker;     // the UCX worker's address, for these
  std::string wire;       // where the rank listens for the wires of all others (wire_meeting.h)
};

// The name of this rank's container: equal on ranks that share process numbers, System V memory and /dev/shm, of which
// a container may have each for itself. Only ranks that share all three see each other's shared memory of UCX.
std::string ContainerName();

std::string Encode(const PeerAddress& address);
// InvalidArgument when `blob` is not an address of this version.
absl::StatusOr<PeerAddress> DecodeAddress(absl::string_view blob);

}  // namespace tutti::ucx

#endif  // TUTTI_TRANSPORTS_UCX_ADDRESS_H_
