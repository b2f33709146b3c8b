// The entry that libFuzzer calls; configure with clang and -DTUTTI_FUZZ=ON, then run bin/store_session_fuzzer.
#include "tests/fuzz/store_session_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  tutti::FuzzStoreSession({reinterpret_cast<const char*>(data), size});
  return 0;
}
