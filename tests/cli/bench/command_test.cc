// tutti bench, as a user runs it: the rows it prints and writes.
#include <sched.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/cli/command_run.h"
#include "tutti/schedule.h"
#include "tutti/selector.h"

namespace tutti::cli {
namespace {

using ::testing::HasSubstr;

constexpr char kQuick[] = " --iters 3 --warmup 1 ";

nlohmann::json BenchRows(const std::string& arguments) {
  const ScratchFile file(".json");
  const CommandRun run = RunTutti("bench " + arguments + kQuick + "--json " + file.path());
  EXPECT_EQ(run.exit_code, 0) << arguments << "\n" << run.out << run.err;
  return run.exit_code == 0 ? nlohmann::json::parse(file.Read())["rows"] : nlohmann::json::array();
}

TEST(BenchTest, WritesTheRowsItPrints) {
  const nlohmann::json rows = BenchRows("all_reduce --ranks 2 -b 4 -e 64K -f 16");
  ASSERT_EQ(rows.size(), 4U);
  std::int64_t bytes = 4;
  for (const nlohmann::json& row : rows) {
    std::set<std::string> keys;
    for (const auto& [key, value] : row.items()) keys.insert(key);
    EXPECT_EQ(keys, (std::set<std::string>{"collective",
                                           "library",
                                           "schedule",
                                           "codec",
                                           "transport",
                                           "ranks",
                                           "nodes",
                                           "ranks_per_node",
                                           "p90_us",
                                           "p95_us",
                                           "p99_9_us",
                                           "bytes",
                                           "count",
                                           "dtype",
                                           "op",
                                           "root",
                                           "p50_us",
                                           "p99_us",
                                           "time_us",
                                           "max_us",
                                           "host_us",
                                           "algbw_gb_s",
                                           "wrong",
                                           "busbw_gb_s",
                                           "device",
                                           "buffers",
                                           "rewrite",
                                           "pause_s",
                                           "in_place",
                                           "calls",
                                           "predicted_us",
                                           "schedule_chosen",
                                           "messages",
                                           "repeat",
                                           "longest_call",
                                           "slowest_rank",
                                           "fastest_rank",
                                           "fastest_us",
                                           "preempted",
                                           "slept",
                                           "waiting_rank",
                                           "waited_us",
                                           "slow_calls",
                                           "slow_calls_waited",
                                           "engine_cpu_us",
                                           "engine_waiting_us"}));
    EXPECT_EQ(row["library"], "tutti");
    EXPECT_EQ(row["device"], "cpu");
    EXPECT_TRUE(row["host_us"].is_null());
    EXPECT_GT(row["predicted_us"].get<double>(), 0);
    EXPECT_EQ(row["collective"], "all_reduce");
    EXPECT_EQ(row["ranks"], 2);
    EXPECT_EQ(row["nodes"], 1);
    EXPECT_EQ(row["ranks_per_node"], 2);
    EXPECT_EQ(row["bytes"], bytes);
    EXPECT_EQ(row["dtype"], "f32");
    EXPECT_EQ(row["op"], "sum");
    EXPECT_EQ(row["wrong"], 0);
    EXPECT_EQ(row["calls"], 3);
    EXPECT_GT(row["p50_us"].get<double>(), 0);
    const char* const ascending[] = {"p50_us", "p90_us", "p95_us", "p99_us", "p99_9_us", "max_us"};
    for (std::size_t i = 1; i < std::size(ascending); ++i) EXPECT_LE(row[ascending[i - 1]], row[ascending[i]]);
    EXPECT_THAT(row["longest_call"].get<int>(), testing::AllOf(testing::Ge(1), testing::Le(3)));
    for (const char* key : {"slowest_rank", "fastest_rank"}) {
      EXPECT_THAT(row[key].get<int>(), testing::AllOf(testing::Ge(0), testing::Le(1)));
    }
    EXPECT_GT(row["fastest_us"].get<double>(), 0);
    EXPECT_LE(row["fastest_us"], row["max_us"]);
    EXPECT_GE(row["preempted"].get<int>(), 0);
    EXPECT_GE(row["slept"].get<int>(), 0);
    EXPECT_GE(row["engine_waiting_us"].get<double>(), 0);
    EXPECT_GE(row["engine_cpu_us"], row["engine_waiting_us"]);
    EXPECT_NEAR(row["algbw_gb_s"].get<double>(), static_cast<double>(bytes) / row["time_us"].get<double>() / 1e3, 1e-9);
    EXPECT_DOUBLE_EQ(row["busbw_gb_s"], row["algbw_gb_s"]);  // 2(n-1)/n is 1 for 2 ranks
    bytes *= 16;
  }
}

TEST(BenchTest, MeasuresEveryCollectiveRightly) {
  for (const char* how : {"--transport inproc --ranks 3", "--transport inproc --ranks 3 --out-of-place --messages",
                          "--transport inproc --ranks 2 --rewrite --buffers private", "--transport inproc --ranks 1"}) {
    for (const nlohmann::json& row : BenchRows(std::string("all -b 4 -e 40K -f 10000 ") + how)) {
      EXPECT_EQ(row["wrong"], 0) << how << ": " << row;
    }
  }
}

// A pause of 200 ms is longer than a call of 4 bytes takes on any machine.
TEST(BenchTest, PausesBeforeEachCallAreNoPartOfItsTime) {
  const std::string what = "all_reduce -b 4 -e 4 --transport inproc --pause 0.2 ";
  const nlohmann::json row = BenchRows(what)[0];
  EXPECT_EQ(row["pause_s"], 0.2);
  EXPECT_LT(row["p50_us"].get<double>(), 2e5);
  EXPECT_EQ(row["wrong"], 0);
  // Pauses count for --min-time, into which fewer calls fit than the 5 that are always timed.
  const ScratchFile file(".json");
  const CommandRun run = RunTutti("bench " + what + "--min-time 0.4 --warmup 1 --json " + file.path());
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(nlohmann::json::parse(file.Read())["rows"][0]["calls"], 5);
}

TEST(BenchTest, SaysThatWhatComesBeforeEachCallCountsInWhatIsUsed) {
  const std::string bench = "bench all_reduce -b 4 -e 4 --transport inproc --ranks 1 --iters 5 --latency";
  for (const char* preparation : {" --pause 0.001", " --rewrite"}) {
    EXPECT_THAT(RunTutti(bench + preparation).out,
                HasSubstr("#   in all calls and what comes before each (rewriting, pause, meeting) ranks lost"));
  }
  EXPECT_THAT(RunTutti(bench).out, HasSubstr("#   in all calls ranks lost"));
}

TEST(BenchTest, MeasuresProcessesOverUcx) {
  for (const nlohmann::json& row : BenchRows("all -b 4 -e 40K -f 10000 --ranks 3 --transport ucx --root 2")) {
    EXPECT_EQ(row["transport"], "ucx");
    EXPECT_EQ(row["wrong"], 0) << row;
  }
}

// Ranks that take each other for other nodes, so that every message goes through the interface.
TEST(BenchTest, ReachesPeersThroughAnInterfaceGivenByNameOrAddress) {
  const std::string command = std::string(kTutti) + " bench all_reduce -b 4 -e 4" + kQuick;
  const auto run_over = [&](const std::string& interface) {
    return RunTutti("launch -n 2 -- sh -c 'TUTTI_NODE=node$TUTTI_RANK TUTTI_INTERFACE=" + interface + " " + command +
                    "'");
  };
  for (const char* interface : {"lo", "127.0.0.1"}) {
    const CommandRun run = run_over(interface);
    EXPECT_EQ(run.exit_code, 0) << interface << "\n" << run.out << run.err;
  }
  const CommandRun run = run_over("192.0.2.1");
  EXPECT_NE(run.exit_code, 0);
  EXPECT_THAT(run.err, HasSubstr("TUTTI_INTERFACE=192.0.2.1 is no network interface, address or subnet of this node"));
}

// Links that are measured at set-up change the predictions: those between nodes unless told otherwise, and those inside
// a node where that is asked for.
TEST(BenchTest, PredictsForLinksMeasuredAtSetUp) {
  const std::string command = std::string(kTutti) + " bench all_gather -b 1M -e 1M --messages --json -" + kQuick;
  // The line that says for which links the command predicts. The predicted time itself may be bound by memory.
  const auto links = [&](const std::string& environment) {
    const CommandRun run = RunTutti("launch -n 3 -- sh -c '" + environment + " " + command + "'");
    EXPECT_EQ(run.exit_code, 0) << environment << "\n" << run.err;
    const std::size_t line = run.err.find("# predicted where messages take");
    EXPECT_NE(line, std::string::npos) << run.err;
    return line == std::string::npos ? "" : run.err.substr(line, run.err.find('\n', line) - line);
  };
  for (const std::string node : {"TUTTI_NODE=same", "TUTTI_NODE=node$TUTTI_RANK", "TUTTI_NODE=node$((TUTTI_RANK/2))"}) {
    const std::string unmeasured = links(node + " TUTTI_MEASURE_LINKS=0");
    EXPECT_EQ(unmeasured, links(node + " TUTTI_MEASURE_LINKS=0")) << node;
    EXPECT_NE(unmeasured, links(node + " TUTTI_MEASURE_LINKS=1")) << node;
    EXPECT_EQ(unmeasured == links(node), node == "TUTTI_NODE=same") << node;
  }
  const CommandRun run = RunTutti("launch -n 2 -- sh -c 'TUTTI_MEASURE_LINKS=$TUTTI_RANK " + command + "'");
  EXPECT_NE(run.exit_code, 0);
  EXPECT_THAT(run.err, HasSubstr("measure_links"));
}

// A rank has descriptors for as many connections as it makes itself.
TEST(BenchTest, RanksMakeEquallyManyConnections) {
  const std::string command = std::string(kTutti) + " bench barrier" + kQuick;
  const CommandRun run = RunTutti("launch -n 2 -- sh -c 'TUTTI_CONNECTIONS=$((TUTTI_RANK+1)) " + command + "'");
  EXPECT_NE(run.exit_code, 0);
  EXPECT_THAT(run.err, HasSubstr("rank 1 has connections=2, rank 0 has 1"));
}

// A Send ends when its message has left; send_recv ends when a message has come, here from another node.
TEST(BenchTest, PredictsForSendRecvWhatAMessageTakesOnItsWay) {
  const CommandRun run =
      RunTutti(absl::StrCat("launch -n 4 -- sh -c 'TUTTI_NODE=node$((TUTTI_RANK/2)) ", "TUTTI_MEASURE_LINKS=0 ", kTutti,
                            " bench send_recv --messages -b 4 -e 4 --json -", kQuick, "'"));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const nlohmann::json rows = nlohmann::json::parse(run.out)["rows"];
  ASSERT_EQ(rows.size(), 1U);
  const CollectiveSpec recv = {.collective = Collective::kRecv, .count = 1, .root = 3};
  const absl::StatusOr<const Schedule*> message = FindSchedule(recv.collective, "message");
  ASSERT_TRUE(message.ok()) << message.status();
  const PlanOptions options = {.nodes = {0, 0, 1, 1}};
  EXPECT_DOUBLE_EQ(rows[0]["predicted_us"].get<double>(), *PredictSeconds(**message, recv, 4, options) * 1e6);
}

TEST(BenchTest, MeasuresTheScheduleItWasTold) {
  const nlohmann::json rows =
      BenchRows("all_reduce --transport inproc --schedule ring --dtype bf16 --op avg -b 1K -e 1K");
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0]["schedule"], "ring");
  EXPECT_EQ(rows[0]["dtype"], "bf16");
  EXPECT_EQ(rows[0]["op"], "avg");
  EXPECT_EQ(rows[0]["wrong"], 0);
}

TEST(BenchTest, TellsTheRootAndTheCount) {
  const std::string what = " --transport inproc --ranks 3 -b 1200 -e 1200";
  const nlohmann::json rooted = BenchRows("gather --root 2" + what), without = BenchRows("all_reduce,send_recv" + what);
  EXPECT_EQ(rooted[0]["root"], 2);
  EXPECT_EQ(rooted[0]["count"], 100);  // of one rank's block
  for (const nlohmann::json& row : without) EXPECT_TRUE(row["root"].is_null());
  EXPECT_EQ(without[0]["count"], 300);
}

// 16-bit types travel as fp32 partials, which only messages show.
TEST(BenchTest, ReducesDTypesRightly) {
  for (const char* dtype : {"f16", "bf16", "f64", "u8"}) {
    for (const char* op : {"sum", "avg", "min", "max", "prod"}) {
      const nlohmann::json rows =
          BenchRows(std::string("all_reduce --transport inproc --ranks 3 --schedule ring -b 8 -e 8K "
                                "-f 1024 --dtype ") +
                    dtype + " --op " + op);
      for (const nlohmann::json& row : rows) EXPECT_EQ(row["wrong"], 0) << row;
    }
  }
}

// What codecs lose is no mistake: wrong are elements that differ between ranks.
TEST(BenchTest, MeasuresSumsInMessagesOfACodec) {
  for (const char* codec : {"uint8_block", "uint8_block,block=128,rounding=stochastic", "bf16", "topk"}) {
    for (const char* how : {"inproc", "ucx", "inproc --dtype bf16 --messages"}) {
      for (const nlohmann::json& row : BenchRows(std::string("all_reduce --ranks 3 -b 4 -e 40K -f 10000 --codec ") +
                                                 codec + " --transport " + how)) {
        EXPECT_EQ(row["wrong"], 0) << how << ": " << row;
        EXPECT_EQ(row["codec"], codec);
        EXPECT_EQ(row["rewrite"], true);  // the timed values are no zeros
        EXPECT_TRUE(row["schedule"].is_null());
      }
    }
  }
}

TEST(BenchTest, TheLastWordOnRewritingIsTheUsers) {
  const std::string what = "all_reduce --transport inproc --ranks 2 -b 64 -e 64 ";
  for (const char* flags : {"--codec bf16 --no-rewrite", "--no-rewrite --codec bf16"}) {
    EXPECT_EQ(BenchRows(what + flags)[0]["rewrite"], false) << flags;
  }
  EXPECT_EQ(BenchRows(what + "--codec bf16")[0]["rewrite"], true);
}

TEST(BenchTest, ReducesTheTypesOfFrameworksRightly) {
  for (const char* type_and_op :
       {"bool --op sum", "bool --op bxor", "i16 --op min", "u16 --op band", "u32 --op bor", "u64 --op bxor",
        "c64 --op prod", "c128 --op avg", "bf16 --op premul_sum", "c64 --op premul_sum"}) {
    const nlohmann::json rows =
        BenchRows(std::string("all_reduce --transport inproc --ranks 3 -b 16 -e 16K -f 1024 --dtype ") + type_and_op);
    ASSERT_EQ(rows.size(), 2U);
    for (const nlohmann::json& row : rows) EXPECT_EQ(row["wrong"], 0) << row;
  }
}

TEST(BenchTest, MovesWhatItCannotReduce) {
  std::set<std::string> collectives;
  for (const nlohmann::json& row : BenchRows("all --transport inproc --ranks 2 -b 64 -e 64 --dtype f8e5m2")) {
    EXPECT_EQ(row["wrong"], 0) << row;
    collectives.insert(row["collective"]);
  }
  EXPECT_THAT(collectives, testing::AllOf(testing::Contains("all_gather"), testing::Contains("send_recv"),
                                          testing::Not(testing::Contains("all_reduce"))));
}

TEST(BenchTest, ARankAloneSendsToItself) {
  const nlohmann::json rows = BenchRows("send_recv --transport inproc --ranks 1 -b 4 -e 1M -f 512");
  ASSERT_EQ(rows.size(), 3U);
  for (const nlohmann::json& row : rows) EXPECT_EQ(row["wrong"], 0) << row;
}

TEST(BenchTest, GoesOnAfterTheSizeOfNothing) {
  const auto sizes = [](const std::string& arguments) {
    std::vector<std::int64_t> bytes;
    for (const nlohmann::json& row : BenchRows(arguments + " --transport inproc")) bytes.push_back(row["bytes"]);
    return bytes;
  };
  EXPECT_THAT(sizes("all_reduce -b 0 -e 64"), testing::ElementsAre(0, 4, 16, 64));
  EXPECT_THAT(sizes("all_reduce -b 0 -e 64 --dtype f64"), testing::ElementsAre(0, 8, 32));
  EXPECT_THAT(sizes("all_reduce -b 0 -e 3"), testing::ElementsAre(0));
  EXPECT_THAT(sizes("all_reduce -b 0 -e 0"), testing::ElementsAre(0));
  EXPECT_THAT(sizes("barrier -b 0 -e 64"), testing::ElementsAre(0));
  EXPECT_THAT(sizes("barrier -b 4 -e 64"), testing::ElementsAre(0));
}

// Sizes that whole elements, equally many for each rank, do not have.
TEST(BenchTest, RoundsSizesToWholeElementsAndMeasuresEachOnce) {
  const auto sizes_of = [](const std::string& arguments, bool rounds) {
    const CommandRun run = RunTutti("bench " + arguments + " --transport inproc --json -" + kQuick);
    EXPECT_EQ(run.exit_code, 0) << run.err;
    const bool says_so = run.err.find("# sizes are rounded down to whole elements") != std::string::npos;
    EXPECT_EQ(says_so, rounds) << arguments;
    std::vector<std::int64_t> bytes;
    const nlohmann::json document = nlohmann::json::parse(run.out);
    for (const nlohmann::json& row : document["rows"]) bytes.push_back(row["bytes"]);
    return bytes;
  };
  EXPECT_THAT(sizes_of("all_reduce -b 7 -e 100", true), testing::ElementsAre(4, 28));
  EXPECT_THAT(sizes_of("all_reduce -b 1 -e 8 -f 2", true), testing::ElementsAre(4, 8));
  EXPECT_THAT(sizes_of("all_reduce -b 1 -e 4 --in-place --out-of-place", true), testing::ElementsAre(4, 4));
  EXPECT_THAT(sizes_of("all_gather --ranks 3 -b 4 -e 64", true), testing::ElementsAre(12, 60));
  EXPECT_THAT(sizes_of("all_reduce,barrier -b 4 -e 16", false), testing::ElementsAre(4, 16, 0));
}

TEST(BenchTest, MeasuresWithoutWarmUp) {
  const CommandRun run = RunTutti("bench all_reduce --transport inproc -b 64 -e 64 -w 0 --iters 3 --json -");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(nlohmann::json::parse(run.out)["rows"][0]["calls"], 3);
  EXPECT_EQ(RunTutti("bench all_reduce --transport inproc -b 64 -e 64 -w 0 --min-time 0.001").exit_code, 0);
}

// A tenth of --min-time would be a day of warm-up.
TEST(BenchTest, WarmsUpForNoMoreCallsThanItTimes) {
  const CommandRun run = RunTutti("bench barrier --transport inproc --ranks 1 --min-time 1e6 --json -");
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(nlohmann::json::parse(run.out)["rows"][0]["calls"], 20'000);
}

// Four ranks that take each other for ranks of two nodes.
TEST(BenchTest, SaysWhereRanksAre) {
  const std::string command = std::string(kTutti) + " bench all_reduce -b 4 -e 4" + kQuick;
  const auto run_on = [&](const std::string& node, const std::string& more) {
    return RunTutti("launch -n 4 -- sh -c 'TUTTI_NODE=" + node + " " + command + more + "'");
  };
  const CommandRun two = run_on("node$((TUTTI_RANK/2))", " --json -");
  ASSERT_EQ(two.exit_code, 0) << two.err;
  EXPECT_THAT(two.err, HasSubstr("# tutti bench all_reduce: 4 ranks on 2 nodes of 2 ranks, transport ucx"));
  EXPECT_THAT(two.err, HasSubstr("\n# busbw is reckoned as if each rank had a link of its own: "));
  const nlohmann::json document = nlohmann::json::parse(two.out);
  for (const nlohmann::json& where : {document["run"], document["rows"][0]}) {
    EXPECT_EQ(where["nodes"], 2);
    EXPECT_EQ(where["ranks_per_node"], 2);
  }
  const CommandRun uneven = run_on("node$((TUTTI_RANK/3))", "");
  EXPECT_THAT(uneven.out, HasSubstr("4 ranks on 2 nodes of up to 3 ranks, "));
  const CommandRun apart = run_on("node$TUTTI_RANK", "");
  EXPECT_THAT(apart.out, HasSubstr("4 ranks on 4 nodes of 1 rank, "));
  EXPECT_THAT(apart.out, testing::Not(HasSubstr("busbw is reckoned")));
}

TEST(BenchTest, WarnsWhereRanksShareProcessors) {
  cpu_set_t before, first;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  int processor = 0;
  while (!CPU_ISSET(processor, &before)) ++processor;
  CPU_ZERO(&first);
  CPU_SET(processor, &first);
  ASSERT_EQ(sched_setaffinity(0, sizeof first, &first), 0);
  const std::string bench = "bench all_reduce -b 4 -e 4 --transport inproc" + std::string(kQuick) + "--ranks ";
  const CommandRun three = RunTutti(bench + "3"), one = RunTutti(bench + "1");
  const CommandRun uneven = RunTutti("launch -n 4 -- sh -c 'TUTTI_NODE=node$((TUTTI_RANK/3)) " + std::string(kTutti) +
                                     " bench all_reduce -b 4 -e 4" + kQuick + "'");
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
  EXPECT_THAT(three.out,
              HasSubstr("\n# warning: the 3 ranks of a node share 1 processor: times have the waits for a "));
  EXPECT_THAT(uneven.out, HasSubstr("\n# warning: up to 3 ranks of a node share 1 processor: times "));
  // A build that is not of the kind of a release has a warning of its own.
  EXPECT_THAT(one.out, testing::Not(HasSubstr("processor: times have the waits")));
}

TEST(BenchTest, WritesJsonToStandardOutputAndTheTableToStandardError) {
  for (const char* transport : {"inproc", "ucx"}) {
    const CommandRun run =
        RunTutti(std::string("bench all_reduce -b 4 -e 64 --json - --transport ") + transport + kQuick);
    EXPECT_EQ(run.exit_code, 0) << run.err;
    const nlohmann::json json = nlohmann::json::parse(run.out, nullptr, /*allow_exceptions=*/false);
    ASSERT_FALSE(json.is_discarded()) << run.out;
    EXPECT_EQ(json["rows"].size(), 3U);
    EXPECT_THAT(run.err, HasSubstr("# every result was right"));
  }
  EXPECT_FALSE(std::filesystem::exists("-"));
}

TEST(BenchTest, RefusesAFileThatItCannotWriteBeforeItMeasures) {
  for (const char* transport : {"inproc", "ucx"}) {
    for (const char* file : {"/nowhere/rows.json", "/"}) {
      const CommandRun run = RunTutti(std::string("bench all_reduce --transport ") + transport + " --json " + file);
      EXPECT_NE(run.exit_code, 0);
      EXPECT_EQ(run.out, "");
      EXPECT_THAT(run.err, HasSubstr(std::string("cannot write ") + file));
    }
  }
}

TEST(BenchTest, PrintsTheColumnsOfNcclTests) {
  const CommandRun run = RunTutti(std::string("bench broadcast --transport inproc -b 1K -e 1K --no-check") + kQuick);
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, testing::ContainsRegex("size +count +type +op +time +algbw +busbw +#wrong +p50 +p99 +max"));
  EXPECT_THAT(run.out, testing::ContainsRegex("1024 +256 +f32 +none .* N/A "));
  EXPECT_THAT(run.out, HasSubstr("results were not checked"));
}

struct Mistake {
  const char* arguments;
  const char* answer;
};

TEST(BenchTest, SaysWhatWouldBeRight) {
  const Mistake mistakes[] = {
      {"bench", "collective is required"},
      {"bench allreduce", "did you mean all_reduce?"},
      {"bench all_reduce --rankz 2", "did you mean --ranks?"},
      {"bench all_reduce --ranks 0", "--ranks: expected a whole number from 1 to 65536, found 0"},
      {"bench all_reduce --ranks two", "--ranks: expected a whole number from 1 to 65536, found two"},
      {"bench all_reduce --ranks 2.5", "--ranks: expected a whole number from 1 to 65536, found 2.5"},
      {"bench all_reduce --iters 1073741824", "--iters: expected a whole number from 1 to 10000000, found 1073741824"},
      {"bench all_reduce -w 10000001", "--warmup: expected a whole number from 0 to 10000000, found 10000001"},
      {"bench all_reduce --min-time 1e9", "--min-time: expected a number from 1e-06 to 1e+06, found 1e9"},
      {"bench all_reduce --min-time abc", "--min-time: expected a number from 1e-06 to 1e+06, found abc"},
      {"bench all_reduce -b 1X", "4, 1K (1024), 256M or 1G"},
      {"bench all_reduce -b 2K -e 1K", "--min-bytes 2K is more than --max-bytes 1K"},
      {"bench all_reduce --min-time nan", "--min-time: expected a number from 1e-06 to 1e+06, found nan"},
      {"bench all_reduce -f 1", "--factor: expected a whole number from 2 to 1073741824, found 1"},
      {"bench all_reduce --dtype f33", "f32"},
      {"bench all_reduce --op add", "sum"},
      {"bench broadcast --root 7", "--root 7 must be in 0…1"},
      {"bench all_reduce --transport tcp", "ucx"},
      {"bench all_reduce --buffers shared", "arena"},
  };
  for (const Mistake& mistake : mistakes) {
    const CommandRun run = RunTutti(mistake.arguments);
    EXPECT_NE(run.exit_code, 0) << mistake.arguments;
    EXPECT_THAT(run.err, HasSubstr(mistake.answer)) << mistake.arguments;
  }
}

// The command prints neither a row nor the launcher's message about ranks that failed.
TEST(BenchTest, RefusesBeforeItStartsRanks) {
  const Mistake mistakes[] = {
      {"bench all_reduce --schedule rings",
       "unknown schedule 'rings' of all_reduce; valid: direct, halving_doubling, "},
      {"bench all --schedule ring", "unknown schedule 'ring' of "},
      {"bench all_reduce --schedule direct --messages",
       "--schedule direct of all_reduce: the schedule reads and writes peers' memory, which is not mapped on this "
       "transport "
       "(--messages); valid: halving_doubling, one_shot, recursive_doubling, ring"},
      {"bench all_reduce --ranks 200 --dtype i8", "i8"},
      {"bench all_reduce --root 1", "--root: all_reduce has no root; leave --root out"},
      {"bench send_recv --root 1", "--root: send has no root; leave --root out"},
      {"bench all_to_all --in-place", "--in-place: all_to_all has no in-place form; leave --in-place out"},
      {"bench send_recv --op max", "--op: send reduces nothing; leave --op out"},
      {"bench all_reduce --ranks 1025 --transport inproc", "--transport inproc starts threads of this process"},
      {"bench all_reduce --dtype f8e4m3fn", "op sum is not defined for f8e4m3fn, which can be moved"},
      {"bench all_reduce --codec uint9", "--codec uint9: "},
      {"bench broadcast --codec bf16", "--codec bf16: messages of codecs are measured in all_reduce with the op sum"},
      {"bench all_reduce --op max --codec bf16", "--codec bf16: messages of codecs are measured in all_reduce"},
      {"bench all_reduce --codec bf16 --schedule ring", "--codec bf16: such a sum has no schedule to choose"},
      {"bench all_reduce --codec bf16 --out-of-place", "--codec bf16: such a sum is in place"},
      {"bench all_reduce --codec uint8_block --dtype i32", "--codec uint8_block: "},
      {"bench all_reduce --op bxor", "op bxor is not defined for f32; valid for f32: sum, avg, min, max, prod"},
  };
  for (const Mistake& mistake : mistakes) {
    const CommandRun run = RunTutti(mistake.arguments);
    EXPECT_EQ(run.exit_code, 2) << mistake.arguments;
    EXPECT_EQ(run.out, "") << mistake.arguments;
    EXPECT_THAT(run.err, HasSubstr(mistake.answer)) << mistake.arguments;
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
  }
}

// Such a launcher's one process may be a shell: srun --pty bash, mpirun -n 1 bash.
TEST(BenchTest, StartsRanksWhereALauncherHasStartedOne) {
  const std::string bench = std::string("bench all_reduce -b 4 -e 4") + kQuick;
  const std::pair<std::string, std::string> launchers[] = {
      {"slurm",
       "SLURM_JOB_ID=1 SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_NODEID=0 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=1 "
       "SLURM_STEP_TASKS_PER_NODE=1 "},
      {"torchrun", "RANK=0 WORLD_SIZE=1 "},
      {"openmpi",
       "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=1 "}};
  for (const auto& [name, variables] : launchers) {
    for (const char* transport : {"auto", "inproc"}) {
      const CommandRun two = RunTutti(bench + "--ranks 2 --transport " + transport, variables);
      EXPECT_EQ(two.exit_code, 0) << two.err;
      EXPECT_THAT(two.out, HasSubstr("# tutti bench all_reduce: 2 ranks on 1 node, "));
      EXPECT_THAT(two.out, testing::Not(HasSubstr("measured alone")));
    }
    const CommandRun alone = RunTutti(bench, variables);
    EXPECT_EQ(alone.exit_code, 0) << alone.err;
    EXPECT_THAT(alone.out, HasSubstr("# tutti bench all_reduce: 1 rank on 1 node, "));
    EXPECT_THAT(alone.out,
                HasSubstr("\n# " + name + " started one rank, which is measured alone: to start N ranks on "));
    const CommandRun meant = RunTutti(bench + "--ranks 1", variables);
    EXPECT_EQ(meant.exit_code, 0) << meant.err;
    EXPECT_THAT(meant.out, testing::Not(HasSubstr("measured alone")));
  }
}

TEST(BenchTest, RefusesToDisagreeWithItsLauncher) {
  const CommandRun run = RunTutti(std::string("launch -n 2 -- ") + kTutti + " bench all_reduce --ranks 3");
  EXPECT_NE(run.exit_code, 0);
  EXPECT_THAT(run.err, HasSubstr("--ranks 3, but tutti started 2 ranks: leave --ranks out"));
}

}  // namespace
}  // namespace tutti::cli
