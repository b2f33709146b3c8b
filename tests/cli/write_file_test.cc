#include "bindings/cli/write_file.h"

#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cli/command_run.h"

namespace tutti::cli {
namespace {

TEST(WriteFileTest, AQuestionChangesNothing) {
  const ScratchFile file(".txt");
  EXPECT_TRUE(CheckWritable(file.path()).ok());
  EXPECT_FALSE(std::filesystem::exists(file.path()));
  ASSERT_TRUE(WriteFile(file.path(), "text").ok());
  EXPECT_TRUE(CheckWritable(file.path()).ok());
  EXPECT_EQ(file.Read(), "text");
}

// A pipe must not be opened: the open would wait for a reader, or give a reader that is there an end of file.
TEST(WriteFileTest, APipeIsLeftAlone) {
  const ScratchFile pipe(".fifo");
  ASSERT_EQ(::mkfifo(pipe.path().c_str(), 0600), 0);
  EXPECT_TRUE(CheckWritable(pipe.path()).ok());
}

TEST(WriteFileTest, AFileThatIsNotYetThereHasOneNameInManySpellings) {
  const ScratchFile link("-link");
  std::filesystem::create_directory_symlink(testing::TempDir(), link.path());
  const std::string here = std::filesystem::current_path().string();
  const std::pair<std::string, std::string> same[] = {
      {"new.json", "new.json"},
      {"new.json", "./new.json"},
      {"./new.json", here + "/new.json"},
      {"new.json", here + "/./../" + std::filesystem::path(here).filename().string() + "/new.json"},
      {testing::TempDir() + "/new.json", link.path() + "/new.json"},
      {"-", "-"}};
  for (const auto& [one, other] : same) {
    const absl::Status distinct = CheckDistinct({"--csv", one}, {"--json", other});
    EXPECT_TRUE(absl::IsInvalidArgument(distinct)) << one << " " << other;
    EXPECT_EQ(distinct.message(), "--csv " + one + " is the file of --json, too; name another one");
  }
  const std::pair<std::string, std::string> distinct[] = {
      {"new.json", "new.csv"}, {"new.json", "/nowhere/new.json"}, {"-", "./-"}, {"", "new.json"}};
  for (const auto& [one, other] : distinct) {
    EXPECT_TRUE(CheckDistinct({"--csv", one}, {"--json", other}).ok()) << one << " " << other;
  }
}

TEST(WriteFileTest, ErrorsNameTheFile) {
  for (const char* path : {"/nowhere/file", "/"}) {
    const absl::Status writable = CheckWritable(path);
    EXPECT_FALSE(writable.ok());
    EXPECT_THAT(std::string(writable.message()), testing::HasSubstr(std::string("cannot write ") + path));
    EXPECT_EQ(WriteFile(path, "text"), writable);
  }
  EXPECT_FALSE(WriteFile("/dev/full", "text").ok());
}

}  // namespace
}  // namespace tutti::cli
