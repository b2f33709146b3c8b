// What a stranger, and then a rank gone mad, can say to the store's server: input for the fuzzer and for the replay
// test.
#ifndef TUTTI_TESTS_FUZZ_STORE_SESSION_FUZZ_H_
#define TUTTI_TESTS_FUZZ_STORE_SESSION_FUZZ_H_

#include <string>

#include "absl/strings/string_view.h"

namespace tutti {

// The first byte chooses whose bytes the rest is: raw from a stranger; frames, sealed here, of an authenticated rank
// (each a length byte and a body, so that the fuzzer gets past the MAC); or a server's frames at a client.
// Aborts when an invariant is broken.
void FuzzStoreSession(absl::string_view input);

// Inputs from which mutation starts: one of each kind that goes right.
std::string StoreSessionSeed(int index);
inline constexpr int kStoreSessionSeeds = 4;

}  // namespace tutti

#endif  // TUTTI_TESTS_FUZZ_STORE_SESSION_FUZZ_H_
