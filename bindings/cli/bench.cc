// tutti bench all_reduce --ranks 2 -b 4 -e 256M -f 4: measures collectives between ranks that the command starts on
// this machine, or between the ranks of the launcher that started the command.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "bindings/cli/bench_device.h"
#include "bindings/cli/bench_report.h"
#include "bindings/cli/bench_run.h"
#include "bindings/cli/command.h"
#include "bindings/cli/flags.h"
#include "bindings/cli/launch.h"
#include "bindings/cli/local_ranks.h"
#include "bindings/cli/sizes.h"
#include "bindings/cli/write_file.h"
#include "tutti/communicator.h"
#include "tutti/cost_model.h"

namespace tutti::cli {
namespace {

CommunicatorOptions OptionsOf(const BenchOptions& options, int local_rank, int devices) {
  CommunicatorOptions communicator;
  if (options.messages) communicator.mapping = CommunicatorOptions::Mapping::kNever;
  if (options.on_device()) communicator.cuda_device = DeviceOf(local_rank, devices);
  return communicator;
}

// Prints what is measured, and where.
absl::Status PrintBeginning(Communicator& communicator, const BenchOptions& options, FILE* table) {
  std::string text = absl::StrCat(
      "# tutti bench ", options.collective, ": ", communicator.size(), " ranks, transport ", communicator.transport(),
      ", ", options.on_device() ? "memory of GPUs" : absl::StrCat(options.buffers, " buffers"),
      options.traffic.in_place ? ", in place where the collective can be" : ", out of place",
      options.rewrite ? ", rewritten before each call" : "", "\n# predicted where ",
      ToString(*communicator.plan_options(options.memory_kind()).cost_model), "\n");
  if (options.on_device()) {
    const absl::StatusOr<std::vector<std::string>> lines = DescribeDevicesOf(communicator);
    if (!lines.ok()) return lines.status();
    absl::StrAppend(&text, "# the GPU of a rank is its local rank modulo the number of GPUs that it sees\n# ",
                    absl::StrJoin(*lines, "\n# "), "\n# calls travel by ", communicator.gpu_transport(), "\n");
  }
  if (communicator.rank() == 0) std::fprintf(table, "%s%s\n", text.c_str(), TableHeading(options.on_device()).c_str());
  return absl::OkStatus();
}

// Runs one rank; rank 0 prints. The number of wrong elements, over all ranks, is in rank 0's result.
absl::StatusOr<std::int64_t> RunRank(Communicator& communicator, const BenchOptions& options) {
  std::vector<BenchRow> rows;
  const bool json_to_output = options.json_file == "-";
  FILE* const table = json_to_output ? stderr : stdout;
  if (absl::Status printed = PrintBeginning(communicator, options, table); !printed.ok()) return printed;
  const auto report_row = [&](const BenchRow& row) {
    if (rows.empty() || rows.back().collective != row.collective) {
      std::fprintf(table, "# %s\n", row.collective.c_str());
    }
    rows.push_back(row);
    std::fprintf(table, "%s\n", TableLine(row).c_str());
    std::fflush(table);
  };
  const auto report_note = [&](const std::string& note) { std::fprintf(table, "# %s\n", note.c_str()); };
  const absl::Status status = RunBench(communicator, options, {report_row, report_note});
  if (!status.ok()) return status;
  if (communicator.rank() != 0) return 0;
  std::fprintf(table, "%s\n", TableFooting(rows).c_str());
  if (json_to_output) {
    std::fputs(Json(rows).c_str(), stdout);
  } else if (!options.json_file.empty()) {
    if (absl::Status written = WriteFile(options.json_file, Json(rows)); !written.ok()) return written;
  }
  std::int64_t wrong = 0;
  for (const BenchRow& row : rows) wrong += std::max<std::int64_t>(row.wrong, 0);
  return wrong;
}

absl::StatusOr<int> ExitCode(const absl::StatusOr<std::int64_t>& wrong) {
  if (!wrong.ok()) return wrong.status();
  return *wrong == 0 ? 0 : 1;
}

absl::StatusOr<int> RunThreads(const BenchOptions& options) {
  absl::StatusOr<int> devices = 0;
  if (options.on_device()) devices = CheckDevices(options.ranks);
  if (!devices.ok()) return devices.status();
  absl::StatusOr<std::int64_t> wrong = 0;
  const absl::Status run = RunLocalRanks(
      options.ranks, options.transport, [&](Rank rank) { return OptionsOf(options, rank, *devices); },
      [&](Communicator& communicator) {
        absl::StatusOr<std::int64_t> result = RunRank(communicator, options);
        if (communicator.rank() == 0) wrong = result;
        return result.status();
      });
  if (!run.ok()) return run;
  return ExitCode(wrong);
}

absl::StatusOr<int> RunProcess(const BenchOptions& options) {
  absl::StatusOr<int> devices = 0;
  // Launchers may show each rank a GPU of its own, so that only NCCL knows whether two ranks share one.
  if (options.on_device()) devices = CheckDevices(1);
  if (!devices.ok()) return devices.status();
  const absl::StatusOr<Bootstrap> job = BootstrapFromEnvironment();
  if (!job.ok()) return job.status();
  const absl::StatusOr<std::unique_ptr<Communicator>> communicator =
      Communicator::Create(*job, OptionsOf(options, job->identity.local_rank, *devices));
  if (!communicator.ok() && options.on_device()) {
    return WithHintOnSharing(communicator.status(), job->identity, *devices);
  }
  if (!communicator.ok()) return communicator.status();
  return ExitCode(RunRank(**communicator, options));
}

// Launches this command again as the program of every rank.
absl::StatusOr<int> LaunchRanks(const BenchOptions& options, const std::vector<std::string>& arguments) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return absl::NotFoundError(absl::StrCat("cannot find this program: /proc/self/exe: ", error.message()));
  if (options.on_device()) {
    if (absl::Status usable = CheckDevicesOfRanksToStart(options.ranks); !usable.ok()) return usable;
  }
  LaunchOptions launch{.ranks = options.ranks, .command = {self.string()}, .tag_output = false};
  launch.command.insert(launch.command.end(), arguments.begin(), arguments.end());
  return Launch(launch);
}

// InvalidArgument when a flag was given that means nothing to the one collective that is measured.
absl::Status CheckFlagsOfBench(const BenchOptions& options, const std::vector<std::string>& given) {
  if (options.collective == "all") return absl::OkStatus();
  const absl::StatusOr<Collective> collective = ParseCollective(options.collective);
  return CheckFlags(collective.value_or(Collective::kSend), given);
}

absl::StatusOr<int> Bench(const BenchOptions& options, bool ranks_given, const std::vector<std::string>& arguments) {
  if (options.min_bytes > options.max_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("--min-bytes ", FormatBytes(options.min_bytes),
                                                   " is more than --max-bytes ", FormatBytes(options.max_bytes)));
  }
  if (options.transport != "auto") setenv("TUTTI_TRANSPORT", options.transport.c_str(), 1);
  const absl::StatusOr<Identity> identity = IdentityFromEnvironment();
  if (!identity.ok()) return identity.status();
  const bool launched = identity->launcher != "single";
  const int ranks = launched ? identity->size : options.ranks;
  if (ranks_given && ranks != options.ranks) {
    return absl::InvalidArgumentError(absl::StrCat("--ranks ", options.ranks, ", but ", identity->launcher, " started ",
                                                   ranks, " ranks: leave --ranks out"));
  }
  if (options.traffic.root >= ranks) {
    return absl::InvalidArgumentError(absl::StrCat("--root ", options.traffic.root, " must be in 0…", ranks - 1));
  }
  if (options.transport == "inproc" && ranks > kMaxLocalRanks) {
    return absl::InvalidArgumentError(absl::StrCat("--ranks ", ranks, ": --transport inproc starts threads of this ",
                                                   "process, for at most ", kMaxLocalRanks, " ranks"));
  }
  if (absl::Status valid = CheckBench(options, ranks); !valid.ok()) return valid;
  // Rank 0 writes the file, after all has been measured.
  if (identity->rank == 0 && !options.json_file.empty() && options.json_file != "-") {
    if (absl::Status writable = CheckWritable(options.json_file); !writable.ok()) return writable;
  }
  if (options.transport == "inproc") {
    if (!launched) return RunThreads(options);
    return absl::InvalidArgumentError(absl::StrCat("--transport inproc is for threads of one process, but ",
                                                   identity->launcher, " started processes: choose ucx or auto"));
  }
  return launched ? RunProcess(options) : LaunchRanks(options, arguments);
}

void AddFlags(CLI::App& bench, BenchOptions& options) {
  AddParsed(bench, "collective", options.collective, ParseBenchName, "NAME", "",
            "all, or one of " + absl::StrJoin(BenchNames(), ", "))
      ->required();
  bench.add_option("-n,--ranks", options.ranks, "Ranks to start on this machine")
      ->check(WholeNumberWithin(1, kMaxRanks))
      ->capture_default_str();
  AddParsed(bench, "-b,--min-bytes", options.min_bytes, ParseBytes, "BYTES", "4",
            "Smallest size; after 0 comes one element");
  AddParsed(bench, "-e,--max-bytes", options.max_bytes, ParseBytes, "BYTES", "256M", "Largest size");
  bench.add_option("-f,--factor", options.factor, "Each size is this many times the one before")
      ->check(WholeNumberWithin(2, 1 << 30))
      ->capture_default_str();
  AddParsed(bench, "--dtype", options.traffic.dtype, ParseDType, "TYPE", "f32", NamesOfDTypes());
  AddParsed(bench, "--op", options.traffic.op, ParseReduceOp, "OP", "sum", NamesOfOps());
  bench.add_option("--root", options.traffic.root, "Root of broadcast, reduce, gather and scatter")
      ->check(WholeNumberWithin(0, kMaxRanks - 1))
      ->capture_default_str();
  bench.add_option("--schedule", options.schedule, "Schedule to measure; without it the one that would be chosen");
  bench
      .add_option("--codec", options.codec,
                  "Codec, with options if any (uint8_block,block=512): measures the sum in messages of this codec")
      ->type_name("CODEC");
  bench.add_option("--transport", options.transport, "auto, ucx (processes) or inproc (threads)")
      ->check(CLI::IsMember({"auto", "ucx", "inproc"}))
      ->capture_default_str();
  bench.add_option("--device", options.device, "cpu (memory of the host) or cuda (memory of GPUs, one for each rank)")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str();
  bench
      .add_option("--peer", options.peer,
                  "nccl: also measure NCCL as it is without Tutti, in turns; with --device cuda")
      ->check(CLI::IsMember({"nccl"}));
  bench.add_flag("--messages", options.messages, "Send messages even where peers' memory could be mapped");
  bench.add_option("--iters", options.calls, "Timed calls of each size, in place of --min-time")
      ->check(WholeNumberWithin(1, 1 << 30));
  bench
      .add_option("--warmup", options.warm_ups,
                  "Calls before the timed ones, at least: without --iters more, until they are steady")
      ->check(WholeNumberWithin(1, 1 << 30))
      ->capture_default_str();
  bench
      .add_option(
          "--min-time", options.min_time,
          "Approximate seconds that the timed calls of one size take together; at least 5 and at most 20,000 calls "
          "are timed")
      ->check(NumberWithin(1e-6, 1e6))
      ->capture_default_str();
  bench.add_flag("--rewrite", options.rewrite, "Every rank rewrites its whole input before each call, untimed");
  bench.add_option("--buffers", options.buffers, "arena (peers can map it) or private (ordinary memory)")
      ->check(CLI::IsMember({"arena", "private"}))
      ->capture_default_str();
  bench.add_flag("--in-place,!--out-of-place", options.traffic.in_place,
                 "One buffer, or one for input and one for output");
  bench.add_flag("!--no-check", options.check, "Do not compare results with what they should be");
  bench
      .add_option("--json", options.json_file,
                  "Also write the rows to this file; -: to standard output, and the table to standard error")
      ->type_name("FILE");
}

}  // namespace

void AddBench(CLI::App& app, Invocation& invocation) {
  CLI::App* bench = app.add_subcommand("bench", "Measure collectives, and check their results");
  auto options = std::make_shared<BenchOptions>();
  AddFlags(*bench, *options);
  bench->footer(
      "Columns are those of nccl-tests; time is the p50 of the calls, and the time of a call is the maximum over the\n"
      "ranks: docs/benchmarking.md. Example: tutti bench all_reduce --ranks 2 -b 4 -e 256M -f 4 --json rows.json\n"
      "On GPUs, where nothing has been measured yet: tutti bench all_reduce --ranks 8 --device cuda --peer nccl");
  bench->callback([options, bench, &invocation] {
    invocation.action = [options, bench, &invocation]() -> absl::StatusOr<int> {
      const std::vector<std::string> given = GivenAmong(*bench, {"--op", "--root"});
      if (absl::Status used = CheckFlagsOfBench(*options, given); !used.ok()) return used;
      return Bench(*options, bench->count("--ranks") > 0, invocation.arguments);
    };
  });
}

}  // namespace tutti::cli
