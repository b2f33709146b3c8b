#include "tutti/extension.h"

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/config.h"
#include "base/environment.h"
#include "base/mutex.h"
#include "plan/registry.h"

namespace tutti {
namespace {

using internal::Registry;

// The registry of the Tutti that has loaded this one, which is part of a library.
std::atomic<Registry*> registry_of_loader = nullptr;

// The registry, before the libraries of TUTTI_EXTENSIONS have been loaded.
Registry& RegistryBeforeLoading() {
  if (Registry* const loader = registry_of_loader.load()) return *loader;
  static Registry& registry = *new Registry;  // never destroyed, as threads may look up names until the process ends
  return registry;
}

// What became of the libraries that were loaded.
struct Loaded {
  Mutex mutex;
  std::map<const internal::ExtensionEntry*, absl::Status> outcomes TUTTI_GUARDED_BY(mutex);
};

absl::Status Load(const std::string& file, Registry& registry) {
  const auto error = [&](absl::StatusCode code, absl::string_view what) {
    return absl::Status(code, absl::StrCat("extension ", file, ": ", what));
  };
  // A path without a slash would be looked for where the system keeps its libraries.
  const std::string path = absl::StrContains(file, '/') ? file : absl::StrCat("./", file);
  if (::access(path.c_str(), R_OK) != 0) {
    return error(errno == ENOENT ? absl::StatusCode::kNotFound : absl::StatusCode::kPermissionDenied,
                 absl::StrCat("the file cannot be read: ", std::strerror(errno)));
  }
  void* const library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return error(absl::StatusCode::kInvalidArgument, absl::StrCat("the library cannot be loaded: ", ::dlerror()));
  }
  const auto* const entry = static_cast<const internal::ExtensionEntry*>(::dlsym(library, "tutti_extension"));
  if (entry == nullptr) {
    return error(absl::StatusCode::kInvalidArgument,
                 "the library registers nothing: build it with add_library(… MODULE) and tutti_add_extensions");
  }
  if (absl::Status version = internal::CheckVersion(entry->tutti_version); !version.ok()) {
    return error(version.code(), version.message());
  }
  static Loaded& loaded = *new Loaded;
  const MutexLock lock(loaded.mutex);
  const auto [outcome, is_new] = loaded.outcomes.try_emplace(entry);
  if (is_new) {
    const absl::Status status = entry->attach(registry);
    if (!status.ok()) outcome->second = error(status.code(), status.message());
  }
  return outcome->second;
}

// The registry, with the libraries of TUTTI_EXTENSIONS. Only the Tutti of the program loads them.
Registry& LoadedRegistry() {
  if (Registry* const loader = registry_of_loader.load()) return *loader;
  static Registry& registry = [&]() -> Registry& {
    Registry& own = RegistryBeforeLoading();
    // The configuration of the process, LoadConfig, may be read later, after a program has changed the environment.
    const Environment environment = ProcessEnvironment();
    const absl::StatusOr<Config> config = ParseConfig(environment);
    if (!config.ok()) {
      // A process that makes no communicator would not hear of the error, and go on without its extensions.
      const auto extensions = environment.find("TUTTI_EXTENSIONS");
      if (extensions != environment.end() && !extensions->second.empty()) {
        own.Refuse({config.status().code(),
                    absl::StrCat("no library of TUTTI_EXTENSIONS was loaded: ", config.status().message())});
      }
      return own;
    }
    for (const absl::string_view file : absl::StrSplit(config->extensions, ':', absl::SkipEmpty())) {
      own.Refuse(Load(std::string(file), own));
    }
    return own;
  }();
  return registry;
}

}  // namespace

absl::Status RegisterExtension(const Extension& extension) { return LoadedRegistry().Register(extension); }
absl::Status LoadExtension(const std::string& file) { return Load(file, LoadedRegistry()); }
absl::Status ExtensionStatus() { return LoadedRegistry().status(); }
std::string ExtensionNames() { return LoadedRegistry().names(); }
absl::Status SealExtensions() { return LoadedRegistry().Seal(); }

std::string MissingExtension() {
  const absl::Status status = ExtensionStatus();
  return status.ok() ? "" : absl::StrCat("; an extension is missing: ", status.message());
}

absl::Span<const Schedule* const> AllSchedules() { return LoadedRegistry().schedules.all(); }
absl::Span<const Codec* const> AllCodecs() { return LoadedRegistry().codecs.all(); }
absl::Span<const Algorithm* const> AllAlgorithms() { return LoadedRegistry().algorithms.all(); }
absl::Span<const PeerSelection* const> AllPeerSelections() { return LoadedRegistry().peer_selections.all(); }

namespace internal {

absl::Status AttachExtension(const Extension& extension, Registry& registry) {
  registry_of_loader.store(&registry);
  return registry.Register(extension);
}

bool RegisterBeforeMain(const Extension& extension) {
  Registry& registry = RegistryBeforeLoading();
  const absl::Status status = registry.Register(extension);
  registry.Refuse(status);
  return status.ok();
}

}  // namespace internal
}  // namespace tutti
