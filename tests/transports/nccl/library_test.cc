#include "transports/nccl/library.h"

#include <dlfcn.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tutti::nccl {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

std::string StubPath(const std::string& name) {
  return absl::StrCat(TUTTI_STUBS, "/libtutti_stub_nccl_", name, ".so.2");
}
std::string StubName(const std::string& name) { return absl::StrCat("libtutti_stub_nccl_", name, ".so.2"); }

// The soname of no library: the real NCCL, which another test may have loaded, must not come before an override.
constexpr char kNobody[] = "libtutti_stub_of_nobody.so.2";

TEST(LibraryTest, APlainNameIsFoundByTheSystem) {
  const absl::StatusOr<Library> library = Load({.soname = StubName("plain")});
  ASSERT_TRUE(library.ok()) << library.status();
  EXPECT_EQ(library->version, kOldestVersion);
  EXPECT_EQ(library->path, StubPath("plain"));
}

TEST(LibraryTest, AnOverrideComesBeforeThePlainName) {
  const absl::StatusOr<Library> library = Load({.soname = kNobody, .override_path = StubPath("override")});
  ASSERT_TRUE(library.ok()) << library.status();
  EXPECT_EQ(VersionText(library->version), "2.23.4");
  EXPECT_EQ(library->path, StubPath("override"));
}

TEST(LibraryTest, ACopyInTheProcessComesBeforeAnOverride) {
  void* const loaded = dlopen(StubPath("loaded").c_str(), RTLD_LAZY | RTLD_LOCAL);
  ASSERT_NE(loaded, nullptr) << dlerror();
  const absl::StatusOr<Library> library = Load({.soname = StubName("loaded"), .override_path = StubPath("override")});
  ASSERT_TRUE(library.ok()) << library.status();
  EXPECT_EQ(library->version, 22809);
  EXPECT_EQ(library->path, StubPath("loaded"));
}

TEST(LibraryTest, SaysWhatCannotBeLoaded) {
  const absl::Status missing = Load({.soname = kNobody}).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()), HasSubstr(std::string(kNobody)));
  EXPECT_THAT(std::string(missing.message()), HasSubstr("set TUTTI_NCCL_LIBRARY"));
  // A wrong override is an error, although the plain name could be loaded.
  const absl::Status overridden =
      Load({.soname = StubName("unloaded"), .override_path = "/nowhere/libnccl.so"}).status();
  EXPECT_EQ(overridden.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(overridden.message()), HasSubstr("TUTTI_NCCL_LIBRARY cannot be loaded: /nowhere/libnccl.so"));
}

TEST(LibraryTest, RefusesAnOldVersionWithTheReason) {
  const absl::Status old = Load({.soname = kNobody, .override_path = StubPath("old")}).status();
  EXPECT_EQ(old.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(old.message()), HasSubstr("is version 2.18.5; Tutti needs 2.19.0 or later"));
}

TEST(LibraryTest, RefusesALibraryThatLacksAFunction) {
  const absl::Status part = Load({.soname = kNobody, .override_path = StubPath("without_group")}).status();
  EXPECT_EQ(part.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(part.message()), HasSubstr("lacks ncclGroupStart"));
  // A library that is not NCCL at all.
  const absl::Status other = Load({.soname = kNobody, .override_path = "libm.so.6"}).status();
  EXPECT_EQ(other.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(other.message()), HasSubstr("does not say its version"));
}

TEST(LibraryTest, KnowsFeaturesByTheirFunctions) {
  const absl::StatusOr<Library> plain = Load({.soname = StubName("plain")});
  ASSERT_TRUE(plain.ok());
  EXPECT_THAT(Features(*plain), ElementsAre());
  EXPECT_THAT(MissingFeatures(*plain), Contains("shrink"));
  EXPECT_THAT(MissingFeatures(*plain), Contains("register"));
  const absl::StatusOr<Library> newer = Load({.soname = kNobody, .override_path = StubPath("loaded")});
  ASSERT_TRUE(newer.ok());
  EXPECT_THAT(Features(*newer), ElementsAre("shrink"));
}

// Whatever this machine has: an answer, and never a crash.
TEST(LibraryTest, TheLibraryOfTheProcessIsLoadedOrSaysWhyNot) {
  const absl::StatusOr<Library>& library = LoadedLibrary();
  if (library.ok()) {
    EXPECT_GE(library->version, kOldestVersion);
    EXPECT_FALSE(library->path.empty());
  } else {
    EXPECT_THAT(std::string(library.status().message()), HasSubstr("no NCCL"));
  }
}

}  // namespace
}  // namespace tutti::nccl
