#include "base/config.h"

#include <algorithm>
#include <cstdio>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/nearest.h"

namespace tutti {
namespace {

// Parse and Print come in pairs, one for each type of field. Parse returns what the value should be, as a part of an
// error text, or nothing if the value is right.
using Expected = std::optional<absl::string_view>;

Expected Parse(absl::string_view text, std::string& value) {
  value = std::string(text);
  return std::nullopt;
}
std::string Print(const std::string& value) { return value; }

Expected Parse(absl::string_view text, int& value) {
  if (absl::SimpleAtoi(text, &value) && value >= 0) return std::nullopt;
  return "an integer that is not negative";
}
std::string Print(int value) { return absl::StrCat(value); }

Expected Parse(absl::string_view text, std::optional<int>& value) { return Parse(text, value.emplace()); }
std::string Print(const std::optional<int>& value) { return value ? Print(*value) : ""; }

Expected Parse(absl::string_view text, absl::Duration& value) {
  double seconds = 0;
  constexpr absl::string_view kExpected = "seconds greater than 0, or inf";
  if (!absl::SimpleAtod(text, &seconds) || !(seconds > 0)) return kExpected;
  value = absl::Seconds(seconds);
  if (value == absl::ZeroDuration()) return kExpected;  // shorter than absl::Duration can express
  return std::nullopt;
}
std::string Print(absl::Duration value) { return absl::StrCat(absl::ToDoubleSeconds(value)); }

Expected Parse(absl::string_view text, std::int64_t& value) {
  constexpr absl::string_view kExpected = "bytes, as in 4096, 64K, 16M or 1G";
  constexpr absl::string_view kUnits = "KMG";
  int shift = 0;
  if (const std::size_t unit = text.empty() ? text.npos : kUnits.find(text.back()); unit != text.npos) {
    shift = 10 * (static_cast<int>(unit) + 1);
    text.remove_suffix(1);
  }
  if (!absl::SimpleAtoi(text, &value) || value < 0 || value > (std::numeric_limits<std::int64_t>::max() >> shift)) {
    return kExpected;
  }
  value <<= shift;
  return std::nullopt;
}
std::string Print(std::int64_t value) {
  for (auto [unit, shift] : {std::pair{"G", 30}, {"M", 20}, {"K", 10}}) {
    if (value > 0 && value % (std::int64_t{1} << shift) == 0) return absl::StrCat(value >> shift, unit);
  }
  return absl::StrCat(value);
}

Expected Parse(absl::string_view text, bool& value) {
  value = text == "1";
  if (text == "0" || text == "1") return std::nullopt;
  return "0 or 1";
}
std::string Print(bool value) { return value ? "1" : "0"; }

Expected Parse(absl::string_view text, std::optional<bool>& value) { return Parse(text, value.emplace()); }
std::string Print(const std::optional<bool>& value) { return value ? Print(*value) : ""; }

struct Variable {
  absl::string_view name;
  Expected (*parse)(absl::string_view text, Config& config);
  std::string (*print)(const Config& config);
  absl::string_view doc;
  bool is_secret = false;
};

template <auto Field>
constexpr Variable Make(absl::string_view name, absl::string_view doc) {
  return {name, [](absl::string_view text, Config& config) { return Parse(text, config.*Field); },
          [](const Config& config) { return Print(config.*Field); }, doc};
}

Expected ParseTransport(absl::string_view text, Config& config) {
  config.transport = std::string(text);
  if (text == "auto" || text == "inproc" || text == "ucx") return std::nullopt;
  return "auto, inproc or ucx";
}

Expected ParseConnections(absl::string_view text, Config& config) {
  if (absl::SimpleAtoi(text, &config.connections) && config.connections >= 1 && config.connections <= 64) {
    return std::nullopt;
  }
  return "an integer from 1 to 64";
}

Expected ParseGpuTransport(absl::string_view text, Config& config) {
  config.gpu_transport = std::string(text);
  if (text == "auto" || text == "nccl" || text == "staged") return std::nullopt;
  return "auto, nccl or staged";
}

Expected ParseVerify(absl::string_view text, Config& config) {
  config.verify = std::string(text);
  if (text == "auto" || text == "always" || text == "never") return std::nullopt;
  return "auto, always or never";
}

constexpr Variable kVariables[] = {
    Make<&Config::rank>("TUTTI_RANK", "Rank of this process. Set it, with TUTTI_SIZE, when no launcher does."),
    Make<&Config::size>("TUTTI_SIZE", "Number of ranks of the job."),
    Make<&Config::local_rank>(
        "TUTTI_LOCAL_RANK",
        "Rank among the ranks of this node. Without it all ranks are taken to be on one node, unless "
        "TUTTI_STORE or TUTTI_RENDEZVOUS is set: then ranks ask each other which share a node."),
    Make<&Config::local_size>("TUTTI_LOCAL_SIZE", "Number of ranks on this node."),
    Make<&Config::epoch>("TUTTI_EPOCH", "How often the job has been restarted; read with TUTTI_RANK."),
    Make<&Config::job_id>("TUTTI_JOB_ID",
                          "Name of the job, equal on all ranks and different for jobs that run at the same time. "
                          "Overrides what the launcher says."),
    Make<&Config::node>(
        "TUTTI_NODE",
        "Name of this node: ranks on nodes of one name share memory. Without it the ranks on one kernel "
        "and in one network namespace are on one node. Tests set names to act as several nodes."),
    Make<&Config::store>(
        "TUTTI_STORE",
        "The store of the job, when something else runs it: tcp://host:port of a server, or "
        "file:///directory on a file system that all ranks share, made for this job alone before it starts; "
        "restart number N of the job uses its folder epoch-N. Under torchrun on several nodes, which does not number "
        "restarts, a job with a directory cannot be restarted; leave the variable unset there."),
    Make<&Config::rendezvous>(
        "TUTTI_RENDEZVOUS",
        "host:port where rank 0 serves the store of a job that spans nodes. "
        "Default: beside RANK and WORLD_SIZE, MASTER_ADDR and the port after MASTER_PORT; under Slurm, the "
        "first node."),
    Make<&Config::interface>(
        "TUTTI_INTERFACE",
        "Network interface that the job uses, by name (eth0), by one of its addresses (10.0.0.3), or by the subnet "
        "that its address is in (10.0.0.0/24), which may be equal on nodes whose interfaces have different names. "
        "Without it a job on one node uses loopback only; a job that spans nodes uses the interface that leads to the "
        "host that serves its store, and rank 0 serves the store at the address of the rendezvous host. Where "
        "TUTTI_STORE is a directory, no host serves the store, and a job that spans nodes needs the variable. Data "
        "ports listen at the interface's first IPv4 address, or its first IPv6 address where it has no other, "
        "whichever is named."),
    Make<&Config::job_secret_fd>(
        "TUTTI_JOB_SECRET_FD", "Inherited file descriptor from which the job secret is read (64 hexadecimal digits)."),
    Make<&Config::job_secret_file>("TUTTI_JOB_SECRET_FILE",
                                   "File with the job secret, readable by its owner only. "
                                   "Make one with: (umask 077; openssl rand -hex 32 > FILE)"),
    Variable{"TUTTI_JOB_SECRET", [](absl::string_view text, Config& config) { return Parse(text, config.job_secret); },
             [](const Config& config) -> std::string { return config.job_secret.empty() ? "" : "(set)"; },
             "The job secret itself. Other processes of the same user can see it: prefer the file.", true},
    Make<&Config::timeout>(
        "TUTTI_TIMEOUT",
        "Seconds after which waiting for another rank is an error; inf: never. The timeout of a process group of "
        "PyTorch, where the script names none; without the variable that is torch's default, 30 minutes."),
    Make<&Config::arena_bytes>(
        "TUTTI_ARENA_BYTES",
        "Address space of the arena from which shared host buffers come. Blocks of several MB are memory from their "
        "allocation on, all others as they are touched. The measurement of links between nodes takes 8 MiB at set-up."),
    Variable{"TUTTI_TRANSPORT", ParseTransport, [](const Config& config) { return config.transport; },
             "Transport between ranks: auto; ucx, which is shared memory within a node and TCP between nodes; or "
             "inproc, which serves a world of one rank (threads make theirs with MakeInprocTransport)."},
    Variable{
        "TUTTI_CONNECTIONS", ParseConnections, [](const Config& config) { return absl::StrCat(config.connections); },
        "TCP connections between two ranks on different nodes, over which long messages are spread, 1 to 64: more than "
        "1 where one connection does not fill the network. Short messages have one connection more, whatever the "
        "number. Ranks in two containers of one node may have such connections, too (docs/several_machines.md). Equal "
        "on all ranks."},
    Variable{"TUTTI_GPU_TRANSPORT", ParseGpuTransport, [](const Config& config) { return config.gpu_transport; },
             "How calls on the memory of GPUs travel: nccl; staged, through pinned memory of the host and "
             "TUTTI_TRANSPORT; or auto, NCCL where all ranks have it and no two have one GPU, otherwise staged. Equal "
             "on all ranks."},
    Make<&Config::nccl_library>("TUTTI_NCCL_LIBRARY",
                                "Path of the NCCL library to load. It has no effect where the process has loaded "
                                "libnccl.so.2 before, as PyTorch does; without it the system finds libnccl.so.2."),
    Make<&Config::schedule>(
        "TUTTI_SCHEDULE",
        "Schedules to use in place of the selected ones: all_reduce=ring,broadcast=binomial. One that serves memory "
        "of one kind alone, of the host or of GPUs, is used there alone. Equal on all ranks."),
    Make<&Config::extensions>(
        "TUTTI_EXTENSIONS",
        "Libraries with schedules, codecs and algorithms of your own to load (docs/extensions.md): paths, with colons "
        "between them. Equal extensions on all ranks."),
    Variable{"TUTTI_VERIFY", ParseVerify, [](const Config& config) { return config.verify; },
             "Which plans are verified before their first run: auto, all but those beyond the limits of "
             "docs/verification.md; always, all; never, those given to Communicator::Bind only."},
    Make<&Config::measure_links>(
        "TUTTI_MEASURE_LINKS",
        "Which links are measured at set-up, so that schedules are chosen for them: without it those between nodes, by "
        "two ranks and, in worlds of up to 64 ranks where rank 0 has two or more peers on other nodes, by all ranks at "
        "once, too; 1: those inside a node too; 0: none. What is chosen for measured links, and with it the order of "
        "sums, may differ from run to run (docs/selection.md). Equal on all ranks."),
    Make<&Config::autotune>("TUTTI_AUTOTUNE",
                            "1: models whose wrapper is not told otherwise (autotune) try in their first steps how "
                            "gradients travel fastest (docs/autotuning.md). Equal on all ranks."),
};

// A variable that the library itself does not read.
struct OfOthers {
  absl::string_view name;
  absl::string_view doc;
};

constexpr OfOthers kOfOthers[] = {
    {"TUTTI_COMPAT",
     "1 in processes of `python -m tutti.compat`, and in those that they start: the names of Bagua and Horovod can be "
     "imported (docs/old_names.md)."},
    {"TUTTI_COMPAT_GPUS",
     "cpu: CPU devices stand for the GPUs that a script for Lightning 1 names (docs/lightning1.md)."},
    {"TUTTI_LIGHTNING_DDP",
     "1: Lightning's strategies `ddp…` run on Tutti once `tutti.lightning` is imported (docs/lightning.md)."},
    {"TUTTI_TORCH_DIR",
     "libtorch's folder, the one with include/ and lib/, for the build and for find_package(tutti COMPONENTS torch)."},
    {"TUTTI_DEPS", "Folder of the Python packages that `.ci/install` installs and the build uses."},
    {"TUTTI_UPDATE_GOLDEN", "1: tests write recorded plans and choices anew."},
    {"TUTTI_FAULT_SEEDS", "Two numbers: the seeds of the sweep through random faults (docs/fault_injection.md)."},
    {"TUTTI_TEST_LIGHTNING", "Name of the module that tests import as Lightning."},
};

}  // namespace

absl::StatusOr<Config> ParseConfig(const Environment& environment) {
  Config config;
  for (const Variable& variable : kVariables) {
    const auto found = environment.find(variable.name);
    if (found == environment.end() || found->second.empty()) continue;
    if (Expected expected = variable.parse(found->second, config)) {
      const std::string value = variable.is_secret ? "(set)" : found->second;
      return absl::InvalidArgumentError(absl::StrCat(variable.name, "=", value, ": expected ", *expected));
    }
  }
  return config;
}

const absl::StatusOr<Config>& LoadConfig() {
  static const absl::StatusOr<Config>& config = *new absl::StatusOr<Config>(ParseConfig(ProcessEnvironment()));
  return config;
}

absl::StatusOr<std::vector<ConfigEntry>> DescribeConfig(const Environment& environment) {
  absl::StatusOr<Config> config = ParseConfig(environment);
  if (!config.ok()) return config.status();
  std::vector<ConfigEntry> entries;
  for (const Variable& variable : kVariables) {
    const auto found = environment.find(variable.name);
    const bool is_set = found != environment.end() && !found->second.empty();
    entries.push_back({std::string(variable.name), variable.print(*config), is_set ? "environment" : "default",
                       std::string(variable.doc)});
  }
  return entries;
}

std::vector<std::string> UnknownVariables(const Environment& environment) {
  constexpr absl::string_view kPrefix = "TUTTI_";
  std::vector<absl::string_view> known;
  for (const Variable& variable : kVariables) known.push_back(variable.name);
  for (const OfOthers& variable : kOfOthers) known.push_back(variable.name);
  std::vector<std::string> warnings;
  for (const auto& [name, value] : environment) {
    if (!absl::StartsWith(name, kPrefix) || std::find(known.begin(), known.end(), name) != known.end()) continue;
    // A name of which more than half is different was hardly meant.
    const absl::string_view nearest = Nearest(name, known, (name.size() - kPrefix.size()) / 2);
    warnings.push_back(absl::StrCat(
        name, " is no variable of Tutti and has no effect; ",
        nearest.empty() ? "docs/configuration.md lists the variables" : absl::StrCat("did you mean ", nearest, "?")));
  }
  return warnings;
}

absl::StatusOr<std::vector<ConfigEntry>> EffectiveConfig() { return DescribeConfig(ProcessEnvironment()); }

std::vector<std::string> ConfigWarnings() { return UnknownVariables(ProcessEnvironment()); }

void WarnOfUnknownVariables() {
  [[maybe_unused]] static const bool warned = [] {
    for (const std::string& warning : ConfigWarnings()) std::fprintf(stderr, "tutti: warning: %s\n", warning.c_str());
    return true;
  }();
}

std::string ConfigurationMarkdown() {
  std::string text =
      "# Configuration\n\n"
      "Environment variables that Tutti reads. An empty value counts as unset. `tutti info` prints the values in "
      "force.\n"
      "This page is printed by the library (`tutti docs configuration`); a test compares the two.\n\n"
      "| variable | default | meaning |\n|---|---|---|\n";
  for (const Variable& variable : kVariables) {
    const std::string value = variable.print(Config());
    absl::StrAppend(&text, "| `", variable.name, "` | ", value.empty() ? "" : absl::StrCat("`", value, "`"), " | ",
                    variable.doc, " |\n");
  }
  absl::StrAppend(
      &text,
      "\nVariables that other parts of Tutti read: the Python package, the build and the tests. Of a variable "
      "whose name begins\nwith `TUTTI_` and is in neither table, rank 0 says on stderr that it has no effect, "
      "and, where a name is near,\nwhich name was probably meant.\n\n| variable | meaning |\n|---|---|\n");
  for (const OfOthers& variable : kOfOthers) {
    absl::StrAppend(&text, "| `", variable.name, "` | ", variable.doc, " |\n");
  }
  return text;
}

}  // namespace tutti
