// Runs the real `tutti` and keeps what it said.
#ifndef TUTTI_TESTS_CLI_COMMAND_RUN_H_
#define TUTTI_TESTS_CLI_COMMAND_RUN_H_

#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "gtest/gtest.h"

namespace tutti::cli {

// The path of a file for one test; the destructor removes the file.
class ScratchFile {
 public:
  explicit ScratchFile(const std::string& suffix) {
    const testing::TestInfo* info = testing::UnitTest::GetInstance()->current_test_info();
    path_ = testing::TempDir() + "tutti-cli-" + std::to_string(getpid()) + "-" + info->name() + suffix;
  }
  ~ScratchFile() { std::filesystem::remove(path_); }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;

  const std::string& path() const { return path_; }
  std::string Read() const {
    std::ifstream file(path_);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }

 private:
  std::string path_;
};

struct CommandRun {
  int exit_code = -1;
  std::string out;
  std::string err;
};

// The program `tutti` as a word for a shell: its path may have spaces.
inline constexpr char kTutti[] = "\"" TUTTI_COMMAND "\"";

// `tutti ARGUMENTS`, read by a shell, which does `before` first.
inline CommandRun RunTutti(const std::string& arguments, const std::string& before = "") {
  const ScratchFile err(".err");
  CommandRun run;
  FILE* const pipe = popen((before + kTutti + " " + arguments + " 2>" + err.path()).c_str(), "r");
  if (pipe == nullptr) return run;
  char part[4096];
  for (std::size_t got = 0; (got = fread(part, 1, sizeof part, pipe)) > 0;) run.out.append(part, got);
  const int status = pclose(pipe);
  if (WIFEXITED(status)) run.exit_code = WEXITSTATUS(status);
  run.err = err.Read();
  return run;
}

}  // namespace tutti::cli

#endif  // TUTTI_TESTS_CLI_COMMAND_RUN_H_
