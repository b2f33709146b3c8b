// The record of a benchmark: its rows, and the machines and links that they were measured on, as text that programs
// read.
#ifndef TUTTI_BINDINGS_CLI_BENCH_RECORD_H_
#define TUTTI_BINDINGS_CLI_BENCH_RECORD_H_

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "bindings/cli/bench/options.h"
#include "bindings/cli/bench/places.h"

namespace tutti::cli {

// Where, when and how rows were measured.
struct BenchAbout {
  std::vector<std::string> hosts;       // of the ranks, each once, in the order of ranks
  std::vector<std::string> rank_hosts;  // the host of each rank
  std::string date;                     // UTC, as in ISO 8601
  std::string version;                  // of Tutti
  std::string build;                    // how Tutti was compiled, in words; "" in files of earlier versions
  std::string command;                  // as a shell would read it
  int ranks = 0;
  BenchPlaces places = {};
  std::string transport;
  std::string links;       // that predictions are made for, in words
  std::string processors;  // that rank 0 can use, as `tutti info` tells them
  // The TUTTI_* variables that were set, on rank 0, but for those that tell who a rank is.
  std::map<std::string, std::string> settings = {};

  // The settings in one line: "TUTTI_SCHEDULE=all_reduce=ring TUTTI_TIMEOUT=7".
  std::string settings_in_words() const;
  // The fields in this order, with their names.
  std::vector<std::pair<std::string, std::string>> lines() const;
};

struct BenchRecord {
  std::string name;  // of the file without folder and end
  BenchAbout about;  // empty where the file says nothing of it
  std::vector<BenchRow> rows;
};

// One line each, without its end. The columns of CSV are the keys of JSON.
std::string JsonOf(const BenchAbout& about);
std::string JsonOf(const BenchRow& row);
std::string CsvHeading();
std::string CsvOf(const BenchRow& row);

// Reads what --json or --jsonl wrote. InvalidArgument names the file and what its rows lack.
absl::StatusOr<BenchRecord> ReadRecord(const std::string& file);

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_BENCH_RECORD_H_
