#include "bindings/cli/read_file.h"

#include <string>

#include "bindings/cli/write_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cli/command_run.h"

namespace tutti::cli {
namespace {

using ::testing::HasSubstr;

TEST(ReadFileTest, ReadsAllBytes) {
  const ScratchFile file(".bin");
  for (const std::size_t bytes : {0U, 1U, 3U << 20}) {
    std::string text(bytes, '\n');
    if (bytes > 0) text.back() = '\0';
    ASSERT_TRUE(WriteFile(file.path(), text).ok());
    const absl::StatusOr<std::string> read = ReadFile(file.path());
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_TRUE(*read == text) << bytes;
  }
}

TEST(ReadFileTest, ErrorsNameTheFileAndTheReason) {
  EXPECT_THAT(std::string(ReadFile("/nowhere/a").status().message()),
              HasSubstr("cannot read /nowhere/a: No such file or directory"));
  EXPECT_THAT(std::string(ReadFile(testing::TempDir()).status().message()),
              HasSubstr("cannot read " + testing::TempDir() + ": Is a directory"));
}

}  // namespace
}  // namespace tutti::cli
