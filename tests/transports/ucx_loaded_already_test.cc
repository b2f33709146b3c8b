// Ranks in whose process something else, as an MPI does, has loaded libraries of a UCX before Tutti loads one.
#include <dlfcn.h>
#include <link.h>

#include <filesystem>
#include <ostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/transports/forked_ranks.h"
#include "tests/transports/payload.h"
#include "tutti/version.h"

namespace tutti {
namespace {

namespace fs = std::filesystem;

// Every library needs those before it.
constexpr const char* kLibraries[] = {"libucs.so.0", "libuct.so.0", "libucp.so.0"};

struct Loaded {
  fs::path folder;
  int libraries = 0;  // so many of kLibraries
};
void PrintTo(const Loaded& loaded, std::ostream* os) {
  *os << loaded.folder << ", up to " << kLibraries[loaded.libraries - 1];
}

std::vector<Loaded> AllLoaded() {
  std::vector<Loaded> all;
  for (const absl::string_view folder : absl::StrSplit(TUTTI_UCX_FOLDERS, ':')) {
    for (const int libraries : {1, 2, 3}) all.push_back({fs::canonical(std::string(folder)), libraries});
  }
  return all;
}

// Loads a library, with the libucm of `folder`: the loader would find that of LD_LIBRARY_PATH first. The libucm of UCX
// 1.22, which can be loaded together with its libucs only, is found through the RPATH of that libucs.
void Load(const fs::path& path, const fs::path& folder) {
  dlopen((folder / "libucm.so.0").c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL), nullptr) << dlerror();
}

// The folder of the library of this name in this process.
fs::path FolderOf(const char* name) {
  void* const handle = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  const link_map* map = nullptr;
  return handle != nullptr && dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 ? fs::canonical(map->l_name).parent_path()
                                                                         : "";
}

// Ranks are forked, and GoogleTest runs suites of such a name first: this process has no UCX yet.
class UcxLoadedAlreadyDeathTest : public testing::TestWithParam<Loaded> {};

TEST_P(UcxLoadedAlreadyDeathTest, MessagesTravelOverThatUcx) {
  const fs::path folder = GetParam().folder;
  const int libraries = GetParam().libraries;
  const auto make = [&](int, const TransportOptions& options) {
    for (int i = 0; i < libraries; ++i) Load(folder / kLibraries[i], folder);
    std::vector<std::unique_ptr<Transport>> transports;
    transports.push_back(MakeUcxTransport({}, options).value());
    return transports;
  };
  ForkedRanks ranks(2, {.name = "one_node", .make = make}, [&](Child& me) {
    const Rank peer = 1 - me.rank;
    const std::string out = Payload(1'000'003, static_cast<unsigned>(me.rank));
    EXPECT_TRUE(me.Exchange(peer, 1, out) == Payload(out.size(), static_cast<unsigned>(peer)));
    for (const char* const library : kLibraries) EXPECT_EQ(FolderOf(library), folder) << library;
    EXPECT_EQ(fs::canonical(DescribeUcx()->path).parent_path(), folder);
    me.transport.Shutdown(absl::OkStatus());
  });
  EXPECT_TRUE(ranks.EndsWell(0));
  EXPECT_TRUE(ranks.EndsWell(1));
}

TEST_P(UcxLoadedAlreadyDeathTest, ALibucsAloneInItsFolderIsAnErrorThatNamesBoth) {
  const fs::path folder = GetParam().folder;
  std::string pattern = testing::TempDir() + "/libucs_alone_XXXXXX";
  const fs::path alone = mkdtemp(pattern.data());
  fs::copy_file(folder / "libucs.so.0", alone / "libucs.so.0");
  const auto describe = [&] {
    Load(alone / "libucs.so.0", folder);
    std::cerr << DescribeUcx().status();
    _exit(0);
  };
  EXPECT_EXIT(describe(), testing::ExitedWithCode(0),
              absl::StrCat("NOT_FOUND: UCX cannot be loaded: this process has loaded ",
                           (alone / "libucs.so.0").string(), ", and not the libucp.so.0 beside that file: ",
                           (alone / "libuct.so.0").string(), ": cannot open .*; install all libraries of one UCX"));
  fs::remove_all(alone);
}

INSTANTIATE_TEST_SUITE_P(Ucx, UcxLoadedAlreadyDeathTest, testing::ValuesIn(AllLoaded()));

}  // namespace
}  // namespace tutti
