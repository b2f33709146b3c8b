#include "transports/nccl/library.h"

#include <dlfcn.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/config.h"

namespace tutti::nccl {
namespace {

struct Symbol {
  const char* name;
  void (*set)(Library& library, void* address);
  bool (*is_set)(const Library& library);
  // What users call the feature; empty: a function that every NCCL since kOldestVersion has.
  absl::string_view feature;
};

template <auto Member>
constexpr Symbol Make(const char* name, absl::string_view feature = "") {
  return {name,
          [](Library& library, void* address) {
            library.*Member = reinterpret_cast<std::remove_reference_t<decltype(library.*Member)>>(address);
          },
          [](const Library& library) { return library.*Member != nullptr; }, feature};
}

constexpr Symbol kSymbols[] = {
    Make<&Library::get_version>("ncclGetVersion"),
    Make<&Library::get_unique_id>("ncclGetUniqueId"),
    Make<&Library::get_error_string>("ncclGetErrorString"),
    Make<&Library::get_last_error>("ncclGetLastError"),
    Make<&Library::comm_init_rank_config>("ncclCommInitRankConfig"),
    Make<&Library::comm_split>("ncclCommSplit"),
    Make<&Library::comm_finalize>("ncclCommFinalize"),
    Make<&Library::comm_destroy>("ncclCommDestroy"),
    Make<&Library::comm_abort>("ncclCommAbort"),
    Make<&Library::comm_get_async_error>("ncclCommGetAsyncError"),
    Make<&Library::comm_count>("ncclCommCount"),
    Make<&Library::comm_user_rank>("ncclCommUserRank"),
    Make<&Library::group_start>("ncclGroupStart"),
    Make<&Library::group_end>("ncclGroupEnd"),
    Make<&Library::all_reduce>("ncclAllReduce"),
    Make<&Library::reduce>("ncclReduce"),
    Make<&Library::broadcast>("ncclBroadcast"),
    Make<&Library::reduce_scatter>("ncclReduceScatter"),
    Make<&Library::all_gather>("ncclAllGather"),
    Make<&Library::send>("ncclSend"),
    Make<&Library::recv>("ncclRecv"),
    Make<&Library::red_op_create_pre_mul_sum>("ncclRedOpCreatePreMulSum"),
    Make<&Library::red_op_destroy>("ncclRedOpDestroy"),
    Make<&Library::comm_shrink>("ncclCommShrink", "shrink"),
    Make<&Library::comm_revoke>("ncclCommRevoke", "revoke"),
    Make<&Library::comm_register>("ncclCommRegister", "register"),
    Make<&Library::comm_deregister>("ncclCommDeregister", "register"),
    Make<&Library::mem_alloc>("ncclMemAlloc", "register"),
    Make<&Library::mem_free>("ncclMemFree", "register"),
    Make<&Library::comm_window_register>("ncclCommWindowRegister", "window"),
    Make<&Library::comm_window_deregister>("ncclCommWindowDeregister", "window"),
    Make<&Library::all_to_all>("ncclAlltoAll", "all_to_all"),
    Make<&Library::gather>("ncclGather", "gather"),
    Make<&Library::scatter>("ncclScatter", "scatter"),
};

// The features of which `library` has all functions, or those that lack one.
std::vector<absl::string_view> FeaturesThat(bool are_there, const Library& library) {
  std::vector<absl::string_view> features;
  for (const Symbol& first : kSymbols) {
    if (first.feature.empty() || (!features.empty() && features.back() == first.feature)) continue;
    bool there = true;
    for (const Symbol& symbol : kSymbols) there &= symbol.feature != first.feature || symbol.is_set(library);
    if (there == are_there) features.push_back(first.feature);
  }
  return features;
}

absl::StatusOr<void*> Open(const SearchPlaces& places) {
  constexpr int kFlags = RTLD_LAZY | RTLD_LOCAL;
  if (void* loaded = dlopen(places.soname.c_str(), kFlags | RTLD_NOLOAD)) return loaded;
  const std::string& name = places.override_path.empty() ? places.soname : places.override_path;
  if (void* loaded = dlopen(name.c_str(), kFlags)) return loaded;
  const std::string reason = dlerror();
  if (!places.override_path.empty()) {
    return absl::NotFoundError(absl::StrCat("no NCCL: TUTTI_NCCL_LIBRARY cannot be loaded: ", reason));
  }
  return absl::NotFoundError(
      absl::StrCat("no NCCL: ", reason, "; install NCCL, or set TUTTI_NCCL_LIBRARY to the path of its library"));
}

std::string PathOf(void* function, const std::string& otherwise) {
  Dl_info found{};
  return dladdr(function, &found) != 0 && found.dli_fname != nullptr ? found.dli_fname : otherwise;
}

}  // namespace

std::string VersionText(int version) {
  return absl::StrCat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

std::vector<absl::string_view> Features(const Library& library) { return FeaturesThat(true, library); }

std::vector<absl::string_view> MissingFeatures(const Library& library) { return FeaturesThat(false, library); }

absl::StatusOr<Library> Load(const SearchPlaces& places) {
  const absl::StatusOr<void*> handle = Open(places);
  if (!handle.ok()) return handle.status();
  Library library;
  for (const Symbol& symbol : kSymbols) symbol.set(library, dlsym(*handle, symbol.name));
  void* const get_version = dlsym(*handle, "ncclGetVersion");
  library.path = PathOf(get_version, places.soname);
  if (library.get_version == nullptr || library.get_version(&library.version) != Result::kSuccess) {
    return absl::FailedPreconditionError(absl::StrCat("no NCCL: ", library.path, " does not say its version"));
  }
  if (library.version < kOldestVersion) {
    return absl::FailedPreconditionError(absl::StrCat("no NCCL: ", library.path, " is version ",
                                                      VersionText(library.version), "; Tutti needs ",
                                                      VersionText(kOldestVersion), " or later"));
  }
  for (const Symbol& symbol : kSymbols) {
    if (!symbol.feature.empty() || symbol.is_set(library)) continue;
    return absl::FailedPreconditionError(absl::StrCat("no NCCL: ", library.path, " lacks ", symbol.name));
  }
  return library;
}

const absl::StatusOr<Library>& LoadedLibrary() {
  static const auto& library = *new absl::StatusOr<Library>([]() -> absl::StatusOr<Library> {
    const absl::StatusOr<tutti::Config>& config = LoadConfig();
    if (!config.ok()) return config.status();
    return Load({.override_path = config->nccl_library});
  }());
  return library;
}

}  // namespace tutti::nccl
