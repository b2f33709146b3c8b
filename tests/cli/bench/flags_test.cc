// Every flag of tutti bench, and every command of docs/benchmarking.md, is run.
#include "bindings/cli/bench/flags.h"

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cli/command_run.h"
#include "tests/harness/source_folder.h"

namespace tutti::cli {
namespace {

using ::testing::HasSubstr;

// A folder that is the working directory meanwhile, with everything in it that commands write.
class WorkingFolder {
 public:
  explicit WorkingFolder(const std::string& name)
      : before_(std::filesystem::current_path()),
        path_(testing::TempDir() + "tutti-" + name + "-" + std::to_string(getpid())) {
    std::filesystem::create_directory(path_);
    std::filesystem::current_path(path_);
  }
  ~WorkingFolder() {
    std::filesystem::current_path(before_);
    std::filesystem::remove_all(path_);
  }
  WorkingFolder(const WorkingFolder&) = delete;
  WorkingFolder& operator=(const WorkingFolder&) = delete;

 private:
  const std::filesystem::path before_;
  const std::string path_;
};

// The long names of the flags that `tutti bench --help` lists.
std::set<std::string> FlagsInHelp() {
  const std::string help = RunTutti("bench --help").out;
  const std::regex flag("\n  (?:-[a-z],)?(--[a-z-]+)");
  std::set<std::string> flags;
  for (std::sregex_iterator match(help.begin(), help.end(), flag), end; match != end; ++match) {
    flags.insert((*match)[1]);
  }
  return flags;
}

TEST(BenchFlagsTest, EveryFlagIsRun) {
  const WorkingFolder folder("flags");
  const std::string base = "bench all_reduce -b 64 -e 64 --iters 2 -w 1 ";
  ASSERT_EQ(RunTutti(base + "--transport inproc --json earlier.json").exit_code, 0);
  const std::map<std::string, std::string> runs = {
      {"--help", "bench --help"},
      {"--ranks", base + "--transport inproc --ranks 3"},
      {"--bind", base + "--ranks 1 --bind"},
      {"--transport", base + "--transport ucx"},
      {"--device", base + "--transport inproc --device cpu"},
      {"--peer", ""},  // needs GPUs, or their fakes: tests/devices/bench_on_devices_test.cc
      {"--messages", base + "--transport inproc --messages"},
      {"--buffers", base + "--transport inproc --buffers private"},
      {"--min-bytes", "bench all_reduce --iters 2 --transport inproc --min-bytes 1K -e 4K"},
      {"--max-bytes", "bench all_reduce --iters 2 --transport inproc -b 1K --max-bytes 4K"},
      {"--factor", "bench all_reduce --iters 2 --transport inproc -b 1K -e 4K --factor 2"},
      {"--dtype", base + "--transport inproc --dtype all"},
      {"--op", base + "--transport inproc --op all"},
      {"--root", "bench broadcast -b 64 -e 64 --iters 2 --transport inproc --root 1"},
      {"--schedule", base + "--transport inproc --schedule all"},
      {"--codec", base + "--transport inproc --codec all"},
      {"--in-place", base + "--transport inproc --in-place"},
      {"--out-of-place", base + "--transport inproc --out-of-place"},
      {"--iters", base + "--transport inproc"},
      {"--warmup", "bench all_reduce -b 64 -e 64 --iters 2 --warmup 2 --transport inproc"},
      {"--min-time", "bench all_reduce -b 64 -e 64 --min-time 0.001 --transport inproc"},
      {"--repeats", base + "--transport inproc --repeats 2"},
      {"--rewrite", base + "--transport inproc --rewrite"},
      {"--pause", base + "--transport inproc --pause 0.01"},
      {"--no-check", base + "--transport inproc --no-check"},
      {"--latency", base + "--transport inproc --latency"},
      {"--json", base + "--transport inproc --json rows.json"},
      {"--jsonl", base + "--transport inproc --jsonl rows.jsonl"},
      {"--csv", base + "--transport inproc --csv rows.csv"},
      {"--plot", base + "--transport inproc --plot rows.svg"},
      {"--compare", base + "--transport inproc --compare earlier.json"},
  };
  std::set<std::string> known;
  for (const auto& [flag, arguments] : runs) {
    known.insert(flag);
    if (arguments.empty()) continue;
    const CommandRun run = RunTutti(arguments);
    EXPECT_EQ(run.exit_code, 0) << arguments << "\n" << run.out << run.err;
  }
  EXPECT_EQ(FlagsInHelp(), known);
}

TEST(BenchFlagsTest, TakesANumberOfCallsOrATime) {
  const CommandRun run = RunTutti("bench all_reduce --iters 5 --min-time 1");
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.err, HasSubstr("--iters excludes --min-time"));
}

TEST(BenchFlagsTest, RefusesFlagsOfOthersAndSaysWhatWouldBeRight) {
  const std::pair<const char*, const char*> mistakes[] = {
      {"-n 20", "write --iters or --ranks"},
      {"-np 2", "write --iters or --ranks"},
      {"-g 8", "write --ranks 8 --device cuda"},
      {"--ngpus 8", "write --ranks 8 --device cuda"},
      {"-t 2", "write --ranks 8 --transport inproc"},
      {"-i 1048576", "write --factor or --iters"},
      {"-m 1", "write --min-bytes and --max-bytes"},
      {"-x 10", "write --warmup"},
      {"-N 3", "write --repeats"},
      {"-c 0", "in place of -c 0 write --no-check"},
      {"-c 1", "leave -c 1 out"},
      {"--validation", "write --no-check"},
      {"--np 2", "write --ranks"},
      {"--output rows.json", "write --json FILE"},
      {"--message-size 4", "write --min-bytes and --max-bytes"},
      {"-a 1", "leave -a out"},
      {"-C 1", "leave -C out"},
      {"-z 1", "write --rewrite"},
      {"-z", "write --rewrite"},
      {"-y 1", "leave -y out"},
      {"-T 60", "TUTTI_TIMEOUT=60"},
      {"-G 1", "leave -G out"},
      {"-R 1", "write --buffers private; with --device cuda leave -R out"},
      {"-p 1", "leave -p out"},
      {"-J rows.json", "write --json"},
      {"-S 1", "leave -S out"},
      {"--warmup_iters 5", "write --warmup"},
      {"--minbytes 4", "write --min-bytes"},
      {"--maxbytes 4", "write --max-bytes"},
      {"--stepfactor 2", "write --factor"},
      {"--datatype float", "write --dtype"},
      {"-d float", "unknown dtype 'float'; did you mean f32?"},
  };
  for (const auto& [flag, answer] : mistakes) {
    const CommandRun run = RunTutti(absl::StrCat("bench all_reduce ", flag));
    EXPECT_EQ(run.exit_code, 2) << flag;
    EXPECT_EQ(run.out, "") << flag;
    EXPECT_THAT(run.err, HasSubstr(answer)) << flag;
  }
}

// The commands of a text: lines of code with `tutti bench` in them.
std::vector<std::string> CommandsIn(std::istream& text, const std::string& indent) {
  std::vector<std::string> commands;
  for (std::string line; std::getline(text, line);) {
    if (absl::StartsWith(line, indent) && line.find("tutti bench") != std::string::npos) {
      commands.push_back(line.substr(indent.size(), line.find("   #", indent.size()) - indent.size()));
    }
  }
  return commands;
}

// A command of the page as it can be run here: of few ranks, and short.
std::string MadeSmall(std::string command) {
  command = std::regex_replace(command, std::regex("--ranks [0-9]+"), "--ranks 2");
  command = std::regex_replace(command, std::regex("tutti bench"), absl::StrCat(kTutti, " bench"));
  command = std::regex_replace(command, std::regex("-[bef] [0-9]+[KMG]?"), "");
  command = std::regex_replace(command, std::regex("bench ([a-z])"), "bench --iters 2 -w 1 -b 1K -e 4K $1");
  return command.substr(std::string(kTutti).size() + 1);
}

void RunCommands(const std::vector<std::string>& commands) {
  for (const std::string& command : commands) {
    if (command.find("--device cuda") != std::string::npos) continue;  // tests/devices/bench_on_devices_test.cc
    const CommandRun run = RunTutti(MadeSmall(command));
    EXPECT_EQ(run.exit_code, 0) << command << "\n" << MadeSmall(command) << "\n" << run.out << run.err;
  }
}

TEST(BenchPagesSlowTest, EveryCommandOfThePagesIsRun) {
  const WorkingFolder folder("pages");
  for (const auto& [page, least] : std::map<std::string, std::size_t>{{"benchmarking.md", 12}, {"selection.md", 1}}) {
    std::ifstream text(SourceFolder() / "docs" / page);
    const std::vector<std::string> commands = CommandsIn(text, "    ");
    EXPECT_GE(commands.size(), least) << page;
    RunCommands(commands);
  }
}

TEST(BenchPagesSlowTest, EveryCommandOfTheHelpIsRun) {
  const WorkingFolder folder("help");
  std::istringstream help(RunTutti("bench --help").out);
  const std::vector<std::string> commands = CommandsIn(help, "  tutti");
  EXPECT_EQ(commands.size(), 3U);
  std::vector<std::string> whole;
  for (const std::string& command : commands) whole.push_back("tutti" + command);
  RunCommands(whole);
}

}  // namespace
}  // namespace tutti::cli
