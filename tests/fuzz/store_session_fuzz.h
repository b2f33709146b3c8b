// What a stranger, and a rank that has joined, can send to the store's server: input for the fuzzer and the replay
// test.
#ifndef TUTTI_TESTS_FUZZ_STORE_SESSION_FUZZ_H_
#define TUTTI_TESTS_FUZZ_STORE_SESSION_FUZZ_H_

#include <string>

#include "absl/strings/string_view.h"

namespace tutti {

// Runs a session on `input` and aborts when an invariant is broken. The first byte chooses what the rest is: raw bytes
// of a stranger; frames of an authenticated rank (each a length byte and a body, which this function seals, so that the
// fuzzer gets past the MAC); or frames of a server for a client.
void FuzzStoreSession(absl::string_view input);

// Inputs from which mutation starts: a valid input of each kind.
std::string StoreSessionSeed(int index);
inline constexpr int kStoreSessionSeeds = 4;

}  // namespace tutti

#endif  // TUTTI_TESTS_FUZZ_STORE_SESSION_FUZZ_H_
