// A directory (mode 0700) that is removed with everything in it.
#ifndef TUTTI_TESTS_STORE_TEMPORARY_DIRECTORY_H_
#define TUTTI_TESTS_STORE_TEMPORARY_DIRECTORY_H_

#include <stdlib.h>

#include <filesystem>
#include <string>

namespace tutti {

class TemporaryDirectory {
 public:
  TemporaryDirectory() : path_(std::filesystem::temp_directory_path() / "tutti-test-XXXXXX") {
    ::mkdtemp(path_.data());
  }
  ~TemporaryDirectory() { std::filesystem::remove_all(path_); }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace tutti

#endif  // TUTTI_TESTS_STORE_TEMPORARY_DIRECTORY_H_
