// tutti bench, as a user runs it: files, pictures, comparisons, and what is left of a run that is interrupted.
#include "bindings/cli/bench/outputs.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/processor_line.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/cli/command_run.h"

namespace tutti::cli {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kQuick[] = " --transport inproc --iters 3 --warmup 1 ";

constexpr int kLinesOfAbout = 13;  // of a CSV, about the run

std::int64_t Lines(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }

TEST(BenchOutputsTest, WritesTheSameRowsInEveryFormat) {
  const ScratchFile json(".json"), jsonl(".jsonl"), csv(".csv"), plot(".svg");
  const CommandRun run = RunTutti("bench all_reduce -b 4 -e 1K -f 16" + std::string(kQuick) + "--json " + json.path() +
                                  " --jsonl " + jsonl.path() + " --csv " + csv.path() + " --plot " + plot.path());
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const nlohmann::json document = nlohmann::json::parse(json.Read());
  ASSERT_EQ(document["rows"].size(), 3U);
  EXPECT_EQ(document["run"]["hosts"].size(), 1U);
  EXPECT_THAT(document["run"]["date"].get<std::string>(), ContainsRegex("^20[0-9-]+T[0-9:]+Z$"));
  EXPECT_THAT(document["run"]["command"].get<std::string>(), HasSubstr("tutti bench all_reduce -b 4 -e 1K -f 16 "));
  EXPECT_THAT(document["run"]["links"].get<std::string>(), HasSubstr("messages take"));
  EXPECT_EQ(document["run"]["ranks"], 2);
  EXPECT_EQ(Lines(jsonl.Read()), 1 + 3);
  EXPECT_EQ(Lines(csv.Read()), kLinesOfAbout + 1 + 3);
  EXPECT_THAT(plot.Read(), HasSubstr(">all_reduce, 2 ranks on 1 node<"));
}

TEST(BenchOutputsTest, TellsTheSettingsInForce) {
  const ScratchFile plain("-plain.json"), ring("-ring.json");
  const std::string bench = "bench all_reduce,broadcast -b 64 -e 64 --iters 3 --warmup 1 --json ";
  // Worlds of other tests of this process leave the variable behind.
  const std::string unset = "unset TUTTI_MEASURE_LINKS; ";
  ASSERT_EQ(RunTutti(bench + plain.path(), unset).exit_code, 0);
  const std::string settings = unset + "TUTTI_SCHEDULE=all_reduce=ring TUTTI_TIMEOUT=60 ";
  const CommandRun run = RunTutti(bench + ring.path() + " --compare " + plain.path(), settings);
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const nlohmann::json before = nlohmann::json::parse(plain.Read()), after = nlohmann::json::parse(ring.Read());
  EXPECT_EQ(before["run"]["settings"], nlohmann::json::object());
  EXPECT_EQ(after["run"]["settings"], (nlohmann::json{{"TUTTI_SCHEDULE", "all_reduce=ring"}, {"TUTTI_TIMEOUT", "60"}}));
  EXPECT_THAT(after["run"]["processors"].get<std::string>(), ContainsRegex("^([0-9]+ of )?[0-9]+ × "));
  EXPECT_EQ(before["rows"][0]["schedule_chosen"], true);
  EXPECT_EQ(after["rows"][0]["schedule"], "ring");
  EXPECT_EQ(after["rows"][0]["schedule_chosen"], false);
  EXPECT_EQ(after["rows"][1]["schedule_chosen"], true) << "the variable names no schedule of broadcast";
  EXPECT_THAT(run.out, HasSubstr("\n#    with TUTTI_SCHEDULE=all_reduce=ring TUTTI_TIMEOUT=60\n"));
}

TEST(BenchOutputsTest, WritesAnyFormatToStandardOutput) {
  const CommandRun csv = RunTutti("bench all_reduce -b 4 -e 64 --csv -" + std::string(kQuick));
  EXPECT_EQ(csv.exit_code, 0) << csv.err;
  EXPECT_EQ(Lines(csv.out), kLinesOfAbout + 1 + 3);
  EXPECT_THAT(csv.err, HasSubstr("# every result was right"));
  const CommandRun jsonl = RunTutti("bench all_reduce -b 4 -e 64 --jsonl -" + std::string(kQuick));
  EXPECT_EQ(Lines(jsonl.out), 1 + 3);
}

TEST(BenchOutputsTest, PrintsTheAverageOfNcclTests) {
  const CommandRun run = RunTutti("bench all_reduce -b 4K -e 4K" + std::string(kQuick));
  EXPECT_THAT(run.out, ContainsRegex("\n# Avg bus bandwidth    : [0-9]+\\.[0-9]+\n"));
  EXPECT_THAT(RunTutti("bench barrier" + std::string(kQuick)).out, Not(HasSubstr("Avg bus bandwidth")));
}

// A codec sends fewer bytes than busbw counts.
TEST(BenchOutputsTest, SaysWhereBusBandwidthIsNotThatOfALink) {
  const CommandRun run = RunTutti("bench all_reduce --codec uint8_block -b 4K -e 4K" + std::string(kQuick));
  EXPECT_THAT(run.out, HasSubstr("\n# busbw with a codec counts the bytes of the values, of which fewer travel: "));
  EXPECT_THAT(RunTutti("bench all_reduce -b 4K -e 4K" + std::string(kQuick)).out, Not(HasSubstr("# busbw")));
}

TEST(BenchOutputsTest, SaysWhatTheLongestCallWas) {
  const CommandRun run = RunTutti("bench all_reduce -b 4K -e 4K --latency" + std::string(kQuick));
  const std::string cause =
      "#   in call [123] (no rank|rank [01]) stood in line for a processor[^\n]*; long for want of a "
      "processor: [01] of the 1 longest\n";
  EXPECT_THAT(
      run.out,
      ContainsRegex("\n#   p90 [0-9.]+, p95 [0-9.]+, p99.9 [0-9.]+, max [0-9.]+ us on rank [01] in call [123] of "
                    "3, through which rank [01] was in [0-9.]+ us\n" +
                    (ProcessorLine().Nanos() < 0 ? "" : cause) +
                    "#   in all calls ranks lost their processor [0-9]+ times and slept [0-9]+ times; the "
                    "engine's threads took [0-9.]+ us of processor time a call, [0-9.]+ us of it to wait for "
                    "peers\n"));
}

// Two calls may take equally long, to the nanosecond, but not in all of 8 repeats.
TEST(BenchOutputsTest, TellsTheMeanOfTwoCallsAsTheirMedian) {
  const CommandRun run =
      RunTutti("bench all_reduce -b 64K -e 64K --transport inproc --iters 2 --warmup 1 --repeats 8 --json -");
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const nlohmann::json document = nlohmann::json::parse(run.out);
  int below_the_longer_call = 0;
  for (const nlohmann::json& row : document["rows"]) {
    EXPECT_EQ(row["p99_us"], row["max_us"]);
    below_the_longer_call += row["p50_us"] < row["max_us"];
  }
  EXPECT_GT(below_the_longer_call, 0);
}

TEST(BenchOutputsTest, PutsInAndOutOfPlaceSideBySide) {
  const ScratchFile json(".json");
  const CommandRun run = RunTutti("bench all_reduce,all_to_all --in-place --out-of-place -b 64 -e 64 --ranks 3" +
                                  std::string(kQuick) + "--json " + json.path());
  ASSERT_EQ(run.exit_code, 0) << run.out << run.err;
  EXPECT_THAT(run.out, ContainsRegex("predicted +place\n"));
  EXPECT_THAT(run.out, ContainsRegex(" in\n +64 [^\n]* out\n"));
  const nlohmann::json rows = nlohmann::json::parse(json.Read())["rows"];
  ASSERT_EQ(rows.size(), 3U);  // all_to_all has no in-place form
  EXPECT_EQ(rows[0]["in_place"], true);
  EXPECT_EQ(rows[1]["in_place"], false);
  EXPECT_EQ(rows[2]["in_place"], false);
  for (const nlohmann::json& row : rows) EXPECT_EQ(row["wrong"], 0) << row;
}

TEST(BenchOutputsTest, RepeatsEverything) {
  const ScratchFile json(".json");
  const CommandRun run =
      RunTutti("bench all_reduce,broadcast --repeats 2 -b 4 -e 4" + std::string(kQuick) + "--json " + json.path());
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("# broadcast, repeat 2 of 2\n"));
  const nlohmann::json rows = nlohmann::json::parse(json.Read())["rows"];
  ASSERT_EQ(rows.size(), 4U);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(rows[i]["repeat"], i < 2 ? 1 : 2);
    EXPECT_EQ(rows[i]["collective"], i % 2 == 0 ? "all_reduce" : "broadcast");
  }
}

// Schedules that serve some sizes, or none here, are left out of a sweep with a note.
TEST(BenchOutputsTest, SweepsSchedules) {
  const ScratchFile json(".json");
  const CommandRun run = RunTutti("bench broadcast --schedule all --dtype f32,bf16 -b 4K -e 1M -f 256 --ranks 3" +
                                  std::string(kQuick) + "--json " + json.path());
  ASSERT_EQ(run.exit_code, 0) << run.out << run.err;
  EXPECT_THAT(run.out, HasSubstr("# schedule native of broadcast is not measured: "));
  EXPECT_THAT(run.out, HasSubstr("# schedule eager of broadcast is not measured: the schedule copies "));
  std::set<std::string> large, small;
  const nlohmann::json document = nlohmann::json::parse(json.Read());
  for (const nlohmann::json& row : document["rows"]) {
    EXPECT_EQ(row["wrong"], 0) << row;
    EXPECT_EQ(row["schedule_chosen"], false);
    (row["bytes"] == 4096 ? small : large).insert(row["schedule"]);
  }
  EXPECT_THAT(small, testing::Contains("eager"));
  EXPECT_THAT(large, testing::AllOf(testing::Contains("direct"), Not(testing::Contains("eager"))));
}

TEST(BenchOutputsTest, NothingMeasuredIsAnError) {
  const CommandRun none =
      RunTutti("bench all_reduce --schedule native,direct --messages -b 64 -e 64" + std::string(kQuick));
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_THAT(none.out, HasSubstr("# schedule direct of all_reduce is not measured: "));
  EXPECT_THAT(none.err, HasSubstr("nothing was measured: no schedule serves these calls"));
}

TEST(BenchOutputsTest, AFolderIsNoEarlierRun) {
  const CommandRun run = RunTutti("bench --compare /");
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_EQ(run.err, "tutti: cannot read /: Is a directory\n");
}

// The barrier needs no memory, and all_reduce more than there is.
TEST(BenchOutputsTest, AnErrorKeepsTheRowsBeforeItAndTheirVerdict) {
  const CommandRun run =
      RunTutti("bench barrier,all_reduce -b 8M -e 8M --json -" + std::string(kQuick), "TUTTI_ARENA_BYTES=4M ");
  EXPECT_EQ(run.exit_code, 1);
  const nlohmann::json document = nlohmann::json::parse(run.out, nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(document.is_object()) << run.out;
  ASSERT_EQ(document["rows"].size(), 1U);
  EXPECT_EQ(document["rows"][0]["collective"], "barrier");
  EXPECT_THAT(run.err, ContainsRegex("\n# every result was right\n(.|\n)*arena: 8388608 bytes asked for"));
}

// The report of two settings, with two commands.
TEST(BenchOutputsTest, ComparesWithAnEarlierRunAndDrawsBoth) {
  const ScratchFile a("-a.json"), b("-b.json"), plot(".svg");
  const std::string bench = "bench all_reduce -b 4 -e 64" + std::string(kQuick);
  ASSERT_EQ(RunTutti(bench + "--json " + a.path()).exit_code, 0);
  const CommandRun run =
      RunTutti(bench + "--messages --json " + b.path() + " --compare " + a.path() + " --plot " + plot.path());
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, ContainsRegex("\n# A: [^\n]*-a \\(memory mapped where it can be\\)"));
  EXPECT_THAT(run.out, HasSubstr("# B takes "));
  const std::string both = plot.Read();
  EXPECT_THAT(both, ContainsRegex("#0072b2(.|\n)*#d55e00"));  // the colors of a first and a second curve
  // Later, without measuring.
  const ScratchFile later("-later.svg");
  const CommandRun alone = RunTutti("bench --plot " + later.path() + " --compare " + a.path() + " " + b.path());
  ASSERT_EQ(alone.exit_code, 0) << alone.err;
  EXPECT_THAT(alone.out, HasSubstr("# B takes "));
  EXPECT_EQ(later.Read(), plot.Read());
}

TEST(BenchOutputsTest, WithoutACollectiveThereAreNoRowsToWrite) {
  const ScratchFile earlier("-earlier.json"), rows("-rows.txt");
  ASSERT_EQ(RunTutti("bench all_reduce -b 4 -e 4 --json " + earlier.path() + kQuick).exit_code, 0);
  for (const char* flag : {"--json", "--jsonl", "--csv"}) {
    const std::string given = absl::StrCat(flag, " ", rows.path());
    const CommandRun run = RunTutti(absl::StrCat("bench ", given, " --compare ", earlier.path(), " ", earlier.path()));
    EXPECT_EQ(run.exit_code, 2) << flag;
    EXPECT_EQ(run.out, "") << flag;
    EXPECT_THAT(run.err, HasSubstr(given + ": nothing is measured without a collective")) << flag;
    EXPECT_FALSE(std::filesystem::exists(rows.path())) << flag;
  }
}

TEST(BenchOutputsTest, RefusesFilesBeforeItMeasures) {
  const ScratchFile file(".json");
  const std::pair<std::string, std::string> mistakes[] = {
      {"--csv /nowhere/rows.csv", "cannot write /nowhere/rows.csv"},
      {"--jsonl /nowhere/rows.jsonl", "cannot write /nowhere/rows.jsonl"},
      {"--plot /nowhere/rows.svg", "cannot write /nowhere/rows.svg"},
      {"--plot rows.png", "the name must end in .svg"},
      {"--compare /nowhere/rows.json", "cannot read /nowhere/rows.json"},
      {"--json rows.json --csv ./rows.json", "--csv ./rows.json is the file of --json, too; name another one"},
      {"--json - --csv -", "--csv - is the file of --json, too"},
      {"--json " + file.path() + " --compare " + file.path(), "is the file of --compare, too"},
  };
  for (const char* transport : {"inproc", "ucx"}) {
    for (const auto& [flags, answer] : mistakes) {
      const CommandRun run = RunTutti("bench all_reduce --transport " + std::string(transport) + " " + flags);
      EXPECT_EQ(run.exit_code, 2) << flags;
      EXPECT_EQ(run.out, "") << flags;
      EXPECT_THAT(run.err, HasSubstr(answer)) << flags;
    }
  }
  EXPECT_FALSE(std::filesystem::exists(file.path()));
}

TEST(BenchOutputsTest, AFullDeviceEndsBadly) {
  for (const char* flag : {"--json", "--jsonl", "--csv"}) {
    const CommandRun run = RunTutti("bench all_reduce -b 4 -e 4 " + std::string(flag) + " /dev/full" + kQuick);
    EXPECT_EQ(run.exit_code, 1) << flag;
    EXPECT_THAT(run.err, HasSubstr("cannot write /dev/full: No space left on device")) << flag;
    EXPECT_EQ(run.out, "") << flag;
  }
}

// Runs `tutti bench` in a folder that is a disk of 64 KiB, after `before`; FOLDER in either is the folder's name.
class SmallDisk {
 public:
  SmallDisk() : folder_("-disk") { std::filesystem::create_directory(folder_.path()); }

  CommandRun Run(const std::string& before, const std::string& transport, const std::string& more) const {
    const std::string disk = folder_.path() + "/disk";
    const std::string files = " --csv a.csv --json a.json --jsonl a.jsonl --plot a.svg";
    return RunTutti("bench all_reduce -b 4 -e 64 --iters 3 --warmup 1 --transport " + transport + more + files +
                        "; code=$?; cp a.* ..; exit $code'",
                    "unshare -rm sh -c 'mkdir " + disk + " && mount -t tmpfs -o size=64k tmpfs " + disk + " && cd " +
                        disk + " || exit 125; " + before + " ");
  }
  std::string path(const std::string& name) const { return folder_.path() + "/" + name; }
  ~SmallDisk() {
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) std::filesystem::remove(entry);
  }

 private:
  const ScratchFile folder_;
};

std::string TextOf(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST(BenchOutputsTest, AFullDiskKeepsWholeRowsAndNamesEveryIncompleteFile) {
  const SmallDisk disk;
  const CommandRun run = disk.Run("", "inproc", " --repeats 40");
  if (run.exit_code == 125) GTEST_SKIP() << "this user may not mount a disk of 64 KiB";
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_THAT(run.out, HasSubstr("# every result was right"));
  EXPECT_THAT(run.err, HasSubstr("the report is incomplete: "));
  for (const char* file : {"a.json", "a.jsonl", "a.csv"}) {
    const std::string reason = std::string("cannot write ") + file + ": No space left on device";
    EXPECT_EQ(run.err.find(reason), run.err.rfind(reason)) << run.err;
    EXPECT_THAT(run.err, HasSubstr(reason));
  }
  const nlohmann::json document = nlohmann::json::parse(TextOf(disk.path("a.json")), nullptr, false);
  ASSERT_TRUE(document.is_object());
  EXPECT_GE(document["rows"].size(), 1U);
  EXPECT_LT(document["rows"].size(), 120U);
  for (const char* name : {"a.jsonl", "a.csv"}) {
    const std::string text = TextOf(disk.path(name));
    ASSERT_FALSE(text.empty()) << name;
    EXPECT_EQ(text.back(), '\n') << name;
  }
  EXPECT_THAT(TextOf(disk.path("a.svg")), testing::EndsWith("</svg>\n"));
}

TEST(BenchOutputsTest, ADiskFullFromTheStartIsAnErrorBeforeAnythingIsMeasured) {
  for (const char* transport : {"inproc", "ucx"}) {
    const SmallDisk disk;
    const CommandRun run = disk.Run("head -c 65536 /dev/zero >filler;", transport, "");
    if (run.exit_code == 125) GTEST_SKIP() << "this user may not mount a disk of 64 KiB";
    EXPECT_EQ(run.exit_code, 1) << run.err;
    EXPECT_EQ(run.out, "");
    EXPECT_THAT(run.err, HasSubstr("nothing was measured: cannot write a.json: No space left on device; cannot write "
                                   "a.jsonl: No space left on device; cannot write a.csv: "));
    for (const char* name : {"a.json", "a.jsonl", "a.csv", "a.svg"}) {
      EXPECT_FALSE(std::filesystem::exists(disk.path(name))) << name;
    }
  }
}

// An unset variable in a script: --csv "$OUT".
TEST(BenchOutputsTest, RefusesAnEmptyName) {
  for (const std::string flag : {"--json", "--jsonl", "--csv", "--plot"}) {
    const CommandRun run = RunTutti("bench all_reduce --transport inproc " + flag + " ''");
    EXPECT_EQ(run.exit_code, 2) << flag;
    EXPECT_EQ(run.out, "") << flag;
    EXPECT_THAT(run.err, HasSubstr(flag + ": '' is the name of no file; write one, or leave the flag out"));
  }
}

// A shell turns >(…) and <(…) into descriptors of this process, which ranks do not inherit.
TEST(BenchOutputsTest, RefusesWhatRanksCannotOpen) {
  const std::string bench = "bench all_reduce -b 4 -e 4 --iters 1 ";
  for (const std::string file :
       {"--json /dev/fd/7 7>&1", "--csv /proc/self/fd/7 7>&1", "--compare /dev/fd/7 7</dev/null"}) {
    const CommandRun run = RunTutti(bench + file);
    EXPECT_EQ(run.exit_code, 2) << file;
    EXPECT_EQ(run.out, "") << file;
    EXPECT_THAT(run.err, HasSubstr("fd/7: ranks are processes that do not inherit this descriptor; name a file, or"));
  }
  const CommandRun threads = RunTutti(bench + "--transport inproc --jsonl /dev/fd/7 7>&1 >/dev/null");
  EXPECT_EQ(threads.exit_code, 0) << threads.err;
  EXPECT_THAT(threads.out, HasSubstr("p50_us\":"));
  EXPECT_EQ(RunTutti(bench + "--json /dev/fd/1").exit_code, 0);
}

// Nobody writes into the pipe, so that whoever opened it would wait without end.
TEST(BenchOutputsTest, RefusesAPipeThatWouldBeReadTwice) {
  const ScratchFile pipe(".fifo");
  ASSERT_EQ(::mkfifo(pipe.path().c_str(), 0600), 0);
  const CommandRun run = RunTutti("bench all_reduce -b 4 -e 4 --iters 1 --compare " + pipe.path());
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.err, HasSubstr("--compare " + pipe.path() + ": a pipe cannot be read twice"));
}

// Waits until the file has a row, which a run without an end writes soon.
void AwaitRow(const ScratchFile& file, pid_t run) {
  while (file.Read().find("p50_us\":") == std::string::npos) {
    ASSERT_EQ(::waitpid(run, nullptr, WNOHANG), 0) << "the run has ended";
    ::sched_yield();
  }
}

TEST(BenchOutputsTest, CtrlCKeepsWhatWasMeasured) {
  for (const char* transport : {"inproc", "ucx"}) {
    const ScratchFile json(".json"), jsonl(".jsonl"), csv(".csv"), plot(".svg");
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      ::setpgid(0, 0);
      ::dup2(::open("/dev/null", O_RDWR), STDOUT_FILENO);
      ::execl(TUTTI_COMMAND, "tutti", "bench", "all_reduce", "-b", "4", "-e", "64", "--iters", "3", "--repeats",
              "1000000", "--transport", transport, "--json", json.path().c_str(), "--jsonl", jsonl.path().c_str(),
              "--csv", csv.path().c_str(), "--plot", plot.path().c_str(), nullptr);
      ::_exit(126);
    }
    AwaitRow(jsonl, child);
    ::kill(-child, SIGINT);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_NE(status, 0);
    const nlohmann::json document = nlohmann::json::parse(json.Read(), nullptr, /*allow_exceptions=*/false);
    ASSERT_TRUE(document.is_object()) << json.Read();
    EXPECT_GE(document["rows"].size(), 1U);
    EXPECT_TRUE(ReadRecord(jsonl.path()).ok());
    EXPECT_GE(Lines(csv.Read()), kLinesOfAbout + 1);
  }
}

}  // namespace
}  // namespace tutti::cli
