#include "transports/ucx/library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "transports/ucx/shared_files.h"

namespace tutti::ucx {
namespace {

void SetDirectoryOfSharedFiles() {
  constexpr char kName[] = "UCX_POSIX_DIR";
  const char* const set = getenv(kName);
  // A value with Tutti's prefix was set by Tutti in a parent process, perhaps as another user, and is replaced; any
  // other value is the user's and stays.
  if (set != nullptr && !absl::StartsWith(set, kSharedFilesPrefix)) return;
  if (const std::string directory = DirectoryOfSharedFiles(); !directory.empty()) {
    setenv(kName, directory.c_str(), /*overwrite=*/1);
  } else {
    unsetenv(kName);
  }
}

// Sets variables, because libucs reads them as it loads; the last six, from UCX_POSIX_ERROR_HANDLING to UCX_POSIX_DIR,
// are no settings of a context in UCX 1.13. Variables that the user has set stay.
void SetProcessWideDefaults() {
  constexpr int kKeep = 0;
  setenv("UCX_HANDLE_ERRORS", "none", kKeep);  // else UCX takes over SIGSEGV, SIGBUS, SIGILL and SIGFPE
  setenv("UCX_DEBUG_SIGNO", "0", kKeep);       // else UCX takes over SIGHUP to write a log, and SIGHUP ends nothing
  setenv("UCX_MEM_EVENTS", "n", kKeep);     // else UCX patches mmap and its kin; all of Tutti's memory is host memory
  setenv("UCX_MEMTYPE_CACHE", "n", kKeep);  // no cache of memory types is needed for host memory
  setenv("UCX_WARN_UNUSED_ENV_VARS", "n", kKeep);  // variables of other versions are normal
  setenv("UCX_LOG_FILE", "stderr", kKeep);         // stdout belongs to the user
  setenv("UCX_LOG_LEVEL", "fatal", kKeep);         // dead peers are reported as statuses
  // Without these two variables, asking for errors of dead peers silently moves all messages from shared memory to TCP.
  setenv("UCX_POSIX_ERROR_HANDLING", "y", kKeep);
  setenv("UCX_SYSV_ERROR_HANDLING", "y", kKeep);
  // The buffers for arriving messages: a rank starts with as many as its FIFO has places (256, and a few), not with
  // twice as many.
  setenv("UCX_POSIX_RX_BUFS_GROW", "264", kKeep);
  setenv("UCX_SYSV_RX_BUFS_GROW", "264", kKeep);
  setenv("UCX_TCP_TX_SEG_SIZE", "64k", kKeep);  // a peer takes 64 KB at once: one system call sends as much
  SetDirectoryOfSharedFiles();
}

absl::StatusOr<Library> Load() {
  SetProcessWideDefaults();
  // Loads the library against which this one was compiled, or if that file has moved, the library that the system
  // finds.
  void* handle = dlopen(TUTTI_UCP_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) handle = dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return absl::NotFoundError(absl::StrCat(
        "UCX cannot be loaded: ", dlerror(),
        "; install UCX 1.13 or later (libucx0 of Debian and Ubuntu), or name its folder in LD_LIBRARY_PATH"));
  }
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
