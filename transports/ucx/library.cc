#include "transports/ucx/library.h"

#include <dlfcn.h>
#include <link.h>

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

constexpr int kKeep = 0;  // variables that the user has set stay

// Sets the variables that libucs reads as it loads. A libucs that has been loaded already would only warn that nothing
// uses them: signals, memory hooks and logs are then as the program wants them that loaded it.
void SetDefaultsOfLoading() {
  setenv("UCX_HANDLE_ERRORS", "none", kKeep);  // else UCX takes over SIGSEGV, SIGBUS, SIGILL and SIGFPE
  setenv("UCX_DEBUG_SIGNO", "0", kKeep);       // else UCX takes over SIGHUP to write a log, and SIGHUP ends nothing
  setenv("UCX_MEM_EVENTS", "n", kKeep);     // else UCX patches mmap and its kin; all of Tutti's memory is host memory
  setenv("UCX_MEMTYPE_CACHE", "n", kKeep);  // no cache of memory types is needed for host memory
  setenv("UCX_WARN_UNUSED_ENV_VARS", "n", kKeep);  // variables of other versions are normal
  setenv("UCX_LOG_FILE", "stderr", kKeep);         // stdout belongs to the user
  setenv("UCX_LOG_LEVEL", "fatal", kKeep);         // dead peers are reported as statuses
}

// Sets variables that are no settings of a context in UCX 1.13; UCX reads them as it makes a worker.
void SetDefaultsOfWorkers() {
  // Without these two variables, UCX does not use shared memory where it is asked for errors of dead peers.
  setenv("UCX_POSIX_ERROR_HANDLING", "y", kKeep);
  setenv("UCX_SYSV_ERROR_HANDLING", "y", kKeep);
  // The buffers for arriving messages: a rank starts with as many as its FIFO has places (256, and a few), not with
  // twice as many.
  setenv("UCX_POSIX_RX_BUFS_GROW", "264", kKeep);
  setenv("UCX_SYSV_RX_BUFS_GROW", "264", kKeep);
  SetDirectoryOfSharedFiles();
}

constexpr char kUcp[] = "libucp.so.0";
constexpr int kFlags = RTLD_NOW | RTLD_LOCAL;

std::string PathOf(void* handle) {
  const link_map* map = nullptr;
  return dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map->l_name != nullptr ? map->l_name : "";
}

// Loads the libucp of the UCX whose `libucs` an MPI or another library has brought into this process: the loader gives
// that libucs to every libucp, and one of another version would lack symbols there. libuct is loaded by its path first,
// because to libucp the loader would give the libuct of Tutti's RPATH or of LD_LIBRARY_PATH.
absl::StatusOr<void*> OpenBeside(void* libucs) {
  const std::string path = PathOf(libucs);
  const std::string folder = path.substr(0, path.rfind('/') + 1);
  void* handle = dlopen(absl::StrCat(folder, "libuct.so.0").c_str(), kFlags);
  if (handle != nullptr) handle = dlopen(absl::StrCat(folder, kUcp).c_str(), kFlags);
  if (handle != nullptr) return handle;
  return absl::NotFoundError(absl::StrCat(
      "UCX cannot be loaded: this process has loaded ", path, ", and not the ", kUcp, " beside that file: ", dlerror(),
      "; install all libraries of one UCX, 1.13 or later, in one folder, and let the process load no other"));
}

absl::StatusOr<void*> Open() {
  constexpr int kOnlyIfLoaded = kFlags | RTLD_NOLOAD;
  if (void* const loaded = dlopen(kUcp, kOnlyIfLoaded)) return loaded;
  if (void* const libucs = dlopen("libucs.so.0", kOnlyIfLoaded)) return OpenBeside(libucs);
  SetDefaultsOfLoading();
  // The library against which this one was compiled, or if that file has moved, the library that the system finds.
  if (void* const handle = dlopen(TUTTI_UCP_LIBRARY, kFlags)) return handle;
  std::string errors = dlerror();
  if (absl::string_view(TUTTI_UCP_LIBRARY) != kUcp) {
    if (void* const handle = dlopen(kUcp, kFlags)) return handle;
    absl::StrAppend(&errors, ", and ", dlerror());
  }
  return absl::NotFoundError(absl::StrCat(
      "UCX cannot be loaded: ", errors,
      "; install UCX 1.13 or later (libucx0 of Debian and Ubuntu), or name its folder in LD_LIBRARY_PATH"));
}

absl::StatusOr<Library> Load() {
  SetDefaultsOfWorkers();
  const absl::StatusOr<void*> handle = Open();
  if (!handle.ok()) return handle.status();
  Library library;
  library.path = PathOf(*handle);
#define TUTTI_UCP_LOAD(function)                                                                       \
  library.function = reinterpret_cast<decltype(library.function)>(dlsym(*handle, #function));          \
  if (library.function == nullptr) {                                                                   \
    return absl::NotFoundError(                                                                        \
        absl::StrCat("UCX of ", library.path, " lacks ", #function, "; needed is UCX 1.13 or later")); \
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
