#include "transports/ucx/library.h"

#include <dlfcn.h>

#include <cstdlib>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace tutti::ucx {
namespace {

// Read by libucs as it loads or, the last two, not to be had as settings of a context in 1.13; so these are variables.
// What the user has set stays.
void SetProcessWideDefaults() {
  constexpr int kKeep = 0;
  setenv("UCX_HANDLE_ERRORS", "none", kKeep);      // else UCX takes SIGSEGV, SIGBUS, SIGILL and SIGFPE
  setenv("UCX_MEM_EVENTS", "n", kKeep);            // else it patches mmap and its kin; all our memory is host memory
  setenv("UCX_MEMTYPE_CACHE", "n", kKeep);         // which is also why no cache of memory types is needed
  setenv("UCX_WARN_UNUSED_ENV_VARS", "n", kKeep);  // variables of other versions are normal
  setenv("UCX_LOG_FILE", "stderr", kKeep);         // stdout belongs to the user
  setenv("UCX_LOG_LEVEL", "fatal", kKeep);         // dead peers are reported as statuses
  // Without these, asking for errors of dead peers silently moves all messages from shared memory to TCP.
  setenv("UCX_POSIX_ERROR_HANDLING", "y", kKeep);
  setenv("UCX_SYSV_ERROR_HANDLING", "y", kKeep);
}

absl::StatusOr<Library> Load() {
  SetProcessWideDefaults();
  // The library that was compiled against, or where it has moved, the one that the system finds.
  void* handle = dlopen(TUTTI_UCP_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) handle = dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return absl::NotFoundError(absl::StrCat("UCX cannot be loaded: ", dlerror()));
  Library library;
#define TUTTI_UCP_LOAD(function)                                                                    \
  library.function = reinterpret_cast<decltype(library.function)>(dlsym(handle, #function));        \
  if (library.function == nullptr) {                                                                \
    return absl::NotFoundError(absl::StrCat("UCX lacks ", #function, "; needed is 1.13 or later")); \
  }
  TUTTI_UCP_FUNCTIONS(TUTTI_UCP_LOAD)
#undef TUTTI_UCP_LOAD
  return library;
}

}  // namespace

const absl::StatusOr<Library>& LoadLibrary() {
  static const absl::StatusOr<Library>* const library = new absl::StatusOr<Library>(Load());
  return *library;
}

}  // namespace tutti::ucx
