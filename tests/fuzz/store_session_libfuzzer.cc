// The entries that libFuzzer calls (preset `fuzz`).
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/store_session_fuzz.h"

extern "C" {

std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  tutti::FuzzStoreSession({reinterpret_cast<const char*>(data), size});
  return 0;
}

// Mutates `data`, after replacing it by a valid input when it is empty, as at the start of libFuzzer, or now and then.
std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size, unsigned random) {
  if (size <= 1 || random % 1024 == 0) {
    const std::string seed = tutti::StoreSessionSeed(static_cast<int>(random / 1024 % tutti::kStoreSessionSeeds));
    size = std::min(seed.size(), max_size);
    std::copy_n(seed.begin(), size, data);
  }
  return LLVMFuzzerMutate(data, size, max_size);
}

}  // extern "C"
