#include "tutti/job_secret.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "store/private_file.h"
#include "tests/store/temporary_directory.h"
#include "tutti/store.h"

namespace tutti {
namespace {

using testing::HasSubstr;

TEST(JobSecretTest, RoundTripsAsText) {
  const JobSecret secret = RandomJobSecret();
  EXPECT_NE(secret.bytes, RandomJobSecret().bytes);
  EXPECT_EQ(ParseJobSecret(ToHex(secret) + "\n")->bytes, secret.bytes);
}

TEST(JobSecretTest, WrongTextIsNotRepeated) {
  const std::string almost(63, 'a');
  for (const std::string& text : {std::string(), almost, almost + "x", almost + "aa"}) {
    absl::Status status = ParseJobSecret(text).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("64 hexadecimal digits"));
    EXPECT_EQ(std::string(status.message()).find("aaa"), std::string::npos);
  }
}

class PrivateFileTest : public testing::Test {
 protected:
  const TemporaryDirectory directory_;
  const std::string path_ = directory_.path() + "/file";
};

TEST_F(PrivateFileTest, IsWrittenForItsOwnerAlone) {
  ASSERT_TRUE(WritePrivateFile(path_, "one").ok());
  ASSERT_TRUE(WritePrivateFile(path_, "two").ok());
  struct stat info;
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_EQ(ReadPrivateFile(path_, 3).value(), "two");
  EXPECT_EQ(ReadPrivateFile(path_, 2).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(PrivateFileTest, WhatOthersMayReadOrLinksAreRefused) {
  EXPECT_EQ(ReadPrivateFile(path_, 10).status().code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(WritePrivateFile(path_, "x").ok());
  for (::mode_t mode : {0640, 0604, 0660}) {
    ASSERT_EQ(::chmod(path_.c_str(), mode), 0);
    absl::Status status = ReadPrivateFile(path_, 10).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
    EXPECT_THAT(std::string(status.message()), HasSubstr("chmod 600"));
  }
  ASSERT_EQ(::chmod(path_.c_str(), 0600), 0);
  const std::string link = directory_.path() + "/link";
  std::filesystem::create_symlink(path_, link);
  EXPECT_EQ(ReadPrivateFile(link, 10).status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(ReadPrivateFile(directory_.path(), 10).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(PrivateFileTest, ADirectoryThatOthersMayWriteIsRefused) {
  const std::string path = directory_.path() + "/d";
  EXPECT_TRUE(MakePrivateDirectory(path).ok());
  EXPECT_TRUE(MakePrivateDirectory(path).ok());
  ASSERT_EQ(::chmod(path.c_str(), 0770), 0);
  EXPECT_EQ(MakePrivateDirectory(path).code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(MakeFileStore(path).status().code(), absl::StatusCode::kPermissionDenied);
  ASSERT_EQ(::chmod(path.c_str(), 0700), 0);
  const std::string link = directory_.path() + "/link";
  std::filesystem::create_symlink(path, link);
  EXPECT_EQ(MakePrivateDirectory(link).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(MakePrivateDirectory(directory_.path() + "/no/such").code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace tutti
