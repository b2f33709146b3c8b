// The settings that the environment can make, read once. Code below the API takes settings from this struct, never from
// getenv. A new variable is one field here and one line in config.cc; `tutti info` and the docs follow by themselves.
#ifndef TUTTI_BASE_CONFIG_H_
#define TUTTI_BASE_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/environment.h"
#include "tutti/config.h"

namespace tutti {

// The table of config.cc says what each field means; the docs are printed from it.
struct Config {
  // Settings that identify this rank.
  std::optional<int> rank;
  std::optional<int> size;
  std::optional<int> local_rank;
  std::optional<int> local_size;
  int epoch = 0;
  std::string job_id;
  std::string node;

  // Settings by which ranks find each other.
  std::string store;
  std::string rendezvous;
  std::string interface;
  std::optional<int> job_secret_fd;
  std::string job_secret_file;
  std::string job_secret;

  // Settings of collectives.
  absl::Duration timeout = absl::Seconds(300);
  std::int64_t arena_bytes = std::int64_t{16} << 30;
  std::string transport = "auto";
  int connections = 1;
  std::string gpu_transport = "auto";
  std::string nccl_library;
  std::string schedule;
  std::string extensions;
  std::string verify = "auto";
  std::optional<bool> measure_links;

  // Settings of training.
  bool autotune = false;
};

// InvalidArgument names the variable, its value and what would be right.
absl::StatusOr<Config> ParseConfig(const Environment& environment);

// The configuration of this process, read at the first call. Thread-safe.
const absl::StatusOr<Config>& LoadConfig();

// Prints each of ConfigWarnings in a line on stderr, at the first call of this process only. One rank of a job calls
// this, rank 0, when it begins to join the job: a variable that was misspelt may be why the job does not come together.
void WarnOfUnknownVariables();

// The functions of tutti/config.h, for tests, with the environment as an argument.
absl::StatusOr<std::vector<ConfigEntry>> DescribeConfig(const Environment& environment);
std::vector<std::string> UnknownVariables(const Environment& environment);

}  // namespace tutti

#endif  // TUTTI_BASE_CONFIG_H_
