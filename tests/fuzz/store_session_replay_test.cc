// A short run of the fuzzer with a fixed seed, for every build.
#include <random>

#include "gtest/gtest.h"
#include "tests/fuzz/store_session_fuzz.h"

namespace tutti {
namespace {

void Mutate(std::string& input, std::mt19937_64& random) {
  for (std::uint64_t changes = 1 + random() % 4; changes > 0; --changes) {
    const std::size_t at = input.empty() ? 0 : random() % input.size();
    switch (random() % 5) {
      case 0:
        if (!input.empty()) input[at] = static_cast<char>(random() & 0xff);
        break;
      case 1:
        if (!input.empty()) input[at] = static_cast<char>(input[at] ^ (1 << random() % 8));
        break;
      case 2:
        input.insert(at, 1 + random() % 8, static_cast<char>(random() & 0xff));
        break;
      case 3:
        input.erase(at, 1 + random() % 8);
        break;
      default:
        input += input.substr(at);
        break;
    }
  }
}

TEST(StoreSessionReplayTest, SeedsAndTheirMutationsKeepTheInvariants) {
  std::mt19937_64 random(20250101);
  for (int seed = 0; seed < kStoreSessionSeeds; ++seed) {
    FuzzStoreSession(StoreSessionSeed(seed));
    for (int round = 0; round < 3000; ++round) {
      std::string input = StoreSessionSeed(seed);
      Mutate(input, random);
      FuzzStoreSession(input);
    }
  }
}

TEST(StoreSessionReplayTest, RandomBytesKeepTheInvariants) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 3000; ++round) {
    std::string input(random() % 300, '\0');
    for (char& byte : input) byte = static_cast<char>(random() & 0xff);
    FuzzStoreSession(input);
  }
}

}  // namespace
}  // namespace tutti
