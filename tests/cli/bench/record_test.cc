#include "bindings/cli/bench/record.h"

#include <string>

#include "bindings/cli/bench/row_file.h"
#include "bindings/cli/command_line.h"
#include "bindings/cli/write_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/cli/command_run.h"

namespace tutti::cli {
namespace {

using ::testing::HasSubstr;

BenchAbout SomeAbout() {
  return {.hosts = {"node1", "node2"},
          .rank_hosts = {"node1", "node1", "node2", "node2"},
          .date = "2026-11-26T10:00:00Z",
          .version = "1.2.3",
          .build = "g++ 12.2.0, optimized",
          .command = CommandLine({"tutti", "bench", "all_reduce", "--plot", "my plot.svg"}),
          .ranks = 2,
          .places = {.nodes = 2, .ranks_per_node = 1},
          .transport = "ucx",
          .links = "messages take 1 µs, \"always\"",
          .processors = "2 of 64 × AMD EPYC",
          .settings = {{"TUTTI_SCHEDULE", "all_reduce=ring"}, {"TUTTI_TIMEOUT", "7"}}};
}

BenchRow SomeRow(std::int64_t bytes) {
  return {.collective = "all_reduce",
          .library = "tutti",
          .schedule = "",
          .codec = "uint8_block,block=512",
          .transport = "ucx",
          .ranks = 2,
          .places = {.nodes = 2, .ranks_per_node = 1},
          .bytes = bytes,
          .count = bytes / 2,
          .dtype = DType::kBF16,
          .op = "sum",
          .time_us = 1.75,
          .p50_us = 1.5,
          .p90_us = 2.1,
          .p95_us = 2.25,
          .p99_us = 2.5,
          .p99_9_us = 3.0,
          .max_us = 3.5,
          .busbw_gb_s = 0.25,
          .wrong = -1,
          .device = "cpu",
          .buffers = "arena",
          .in_place = true,
          .repeat = 2};
}

// The document is whole after every row, as a run that is killed leaves it.
TEST(BenchRecordTest, JsonIsWholeAfterEveryRow) {
  const ScratchFile scratch(".json");
  RowFile file(scratch.path(), RowFormat::kJson, SomeAbout());
  for (std::size_t rows = 0; rows < 3; ++rows) {
    const nlohmann::json json = nlohmann::json::parse(scratch.Read(), nullptr, false);
    ASSERT_TRUE(json.is_object()) << scratch.Read();
    EXPECT_EQ(json["rows"].size(), rows);
    EXPECT_EQ(json["run"]["hosts"], nlohmann::json({"node1", "node2"}));
    EXPECT_EQ(json["run"]["command"], "tutti bench all_reduce --plot 'my plot.svg'");
    file.Append(SomeRow(4));
  }
  EXPECT_TRUE(file.Finish().ok());
  EXPECT_EQ(nlohmann::json::parse(scratch.Read())["rows"].size(), 3U);
}

TEST(BenchRecordTest, ReadsWhatItWrites) {
  for (const RowFormat format : {RowFormat::kJson, RowFormat::kJsonLines}) {
    const ScratchFile scratch(".json");
    RowFile file(scratch.path(), format, SomeAbout());
    file.Append(SomeRow(4));
    file.Append(SomeRow(8));
    ASSERT_TRUE(file.Finish().ok());
    const absl::StatusOr<BenchRecord> record = ReadRecord(scratch.path());
    ASSERT_TRUE(record.ok()) << record.status();
    EXPECT_EQ(record->about.lines(), SomeAbout().lines());
    ASSERT_EQ(record->rows.size(), 2U);
    EXPECT_EQ(JsonOf(record->rows[1]), JsonOf(SomeRow(8)));
  }
}

TEST(BenchRecordTest, CsvHasTheColumnsOfJson) {
  const ScratchFile scratch(".csv");
  RowFile file(scratch.path(), RowFormat::kCsv, SomeAbout());
  file.Append(SomeRow(4));
  ASSERT_TRUE(file.Finish().ok());
  const std::string text = scratch.Read();
  for (const char* line :
       {"# hosts: node1 node2\n", "# rank_hosts: node1 node1 node2 node2\n", "# date: 2026-11-26T10:00:00Z\n",
        "# version: 1.2.3\n", "# build: g++ 12.2.0, optimized\n",
        "# command: tutti bench all_reduce --plot 'my plot.svg'\n", "# links: messages take 1 µs, \"always\"\n",
        "# processors: 2 of 64 × AMD EPYC\n", "# settings: TUTTI_SCHEDULE=all_reduce=ring TUTTI_TIMEOUT=7\n",
        "# ranks: 2\n# nodes: 2\n# ranks_per_node: 1\n# transport: ucx\n",
        "\ncollective,library,schedule,codec,transport,ranks,nodes,ranks_per_node,bytes,count,dtype,op,root,time_us,"
        "p50_us,p90_us,"
        "p95_us,p99_us,p99_9_us,max_us,",
        "\nall_reduce,tutti,,\"uint8_block,block=512\",ucx,2,2,1,4,2,bf16,sum,,1.75,1.5,2.1,2.25,2.5,3.0,3.5,,"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

// A run that was killed while it wrote leaves half a line.
TEST(BenchRecordTest, ReadsLinesUpToAnUnfinishedOne) {
  const ScratchFile scratch(".jsonl");
  const std::string row = JsonOf(SomeRow(4));
  ASSERT_TRUE(WriteFile(scratch.path(), row + "\n" + row + "\n" + row.substr(0, 20)).ok());
  EXPECT_EQ(ReadRecord(scratch.path())->rows.size(), 2U);
}

// Editors and other programs leave the end of the last line out.
TEST(BenchRecordTest, ReadsALastLineWithoutItsEnd) {
  const ScratchFile scratch(".jsonl");
  for (const std::size_t rows : {1U, 2U}) {
    const std::string lines = (rows == 2 ? JsonOf(SomeRow(4)) + "\n" : "") + JsonOf(SomeRow(8));
    ASSERT_TRUE(WriteFile(scratch.path(), lines).ok());
    const absl::StatusOr<BenchRecord> record = ReadRecord(scratch.path());
    ASSERT_TRUE(record.ok()) << record.status();
    EXPECT_EQ(record->rows.size(), rows);
    EXPECT_EQ(record->rows.back().bytes, 8);
  }
}

// Rows of bench/peers have no more than this.
TEST(BenchRecordTest, ReadsRowsOfOtherPrograms) {
  const ScratchFile scratch(".json");
  ASSERT_TRUE(WriteFile(scratch.path(), R"({"collective": "all_reduce", "library": "mpich", "bytes": 4, "time_us": 2})"
                                        "\n")
                  .ok());
  const absl::StatusOr<BenchRecord> record = ReadRecord(scratch.path());
  ASSERT_TRUE(record.ok()) << record.status();
  EXPECT_EQ(record->rows[0].library, "mpich");
  EXPECT_EQ(record->rows[0].time_us, 2);
  EXPECT_EQ(record->rows[0].places.nodes, 0);
  EXPECT_FALSE(record->rows[0].schedule_chosen);
  EXPECT_EQ(record->rows[0].variant, "");
  EXPECT_EQ(record->rows[0].link, "");
}

// The columns and links of bench/peers: two rows that agree in all else are of two series.
TEST(BenchRecordTest, ReadsTheVariantAndTheLinkOfOtherPrograms) {
  const ScratchFile scratch(".json");
  const std::string row = R"({"collective": "all_reduce", "library": "tutti", "bytes": 4, "time_us": 2, )";
  ASSERT_TRUE(WriteFile(scratch.path(), row + R"("name": "tutti", "rate": "1gbit", "delay_ms": 0})" + "\n" + row +
                                            R"("name": "before", "rate": "1gbit", "delay_ms": 0.5, "lost_of": 1000})" +
                                            "\n")
                  .ok());
  const absl::StatusOr<BenchRecord> record = ReadRecord(scratch.path());
  ASSERT_TRUE(record.ok()) << record.status();
  EXPECT_EQ(record->rows[0].variant, "measured as tutti");
  EXPECT_EQ(record->rows[0].link, "1gbit");
  EXPECT_EQ(record->rows[1].variant, "measured as before");
  EXPECT_EQ(record->rows[1].link, "1gbit with a delay of 0.5 ms that loses 1 of 1000 packets");
}

TEST(BenchRecordTest, SaysWhatAFileLacks) {
  const ScratchFile scratch(".json");
  const std::pair<const char*, const char*> mistakes[] = {
      {"", "no rows; nothing was measured"},
      {"{\"rows\": []}", "no rows; nothing was measured"},
      {"{\"rows\": [{\"collective\": \"barrier\", \"bytes\": 0}]}", "a row without time_us"},
      {R"({"collective": "all_reduce", "bytes": 4, "p50_us": 2})",
       "a row without time_us; write the file with --json or --jsonl of this version of tutti bench"},
      {"{\"rows\": [7]}", "a row without collective"},
      {R"({"collective": "all_reduce", "bytes": 4, "time_us": 2, "dtype": "f33"})",
       "a row with an unknown dtype 'f33'"},
      {"size,time\n4,5\n", "line 1 is no JSON object; write the file with tutti bench --json or --jsonl"},
  };
  for (const auto& [text, answer] : mistakes) {
    ASSERT_TRUE(WriteFile(scratch.path(), text).ok());
    const absl::Status status = ReadRecord(scratch.path()).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << text;
    EXPECT_THAT(std::string(status.message()), HasSubstr(scratch.path() + ": " + answer));
  }
  EXPECT_THAT(std::string(ReadRecord(testing::TempDir()).status().message()),
              HasSubstr("cannot read " + testing::TempDir() + ": Is a directory"));
  EXPECT_THAT(std::string(ReadRecord("/nowhere/a.json").status().message()), HasSubstr("cannot read /nowhere/a.json"));
}

TEST(BenchRecordTest, AFullDiskIsAnError) {
  for (const RowFormat format : {RowFormat::kJson, RowFormat::kJsonLines, RowFormat::kCsv}) {
    RowFile file("/dev/full", format, SomeAbout());
    file.Append(SomeRow(4));
    EXPECT_THAT(std::string(file.Finish().message()), HasSubstr("cannot write /dev/full: No space left on device"));
  }
  RowFile nowhere("/nowhere/rows.csv", RowFormat::kCsv, SomeAbout());
  nowhere.Append(SomeRow(4));
  EXPECT_THAT(std::string(nowhere.Finish().message()), HasSubstr("cannot write /nowhere/rows.csv"));
}

}  // namespace
}  // namespace tutti::cli
