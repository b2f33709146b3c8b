// tutti bench all_reduce --ranks 2 -b 4 -e 256M -f 4: measures collectives between ranks that the command starts on
// this machine, or between the ranks of the launcher that started the command.
#include "bindings/cli/command.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/host_name.h"
#include "bindings/cli/bench/agreement.h"
#include "bindings/cli/bench/device.h"
#include "bindings/cli/bench/flags.h"
#include "bindings/cli/bench/outputs.h"
#include "bindings/cli/bench/places.h"
#include "bindings/cli/bench/report.h"
#include "bindings/cli/bench/run.h"
#include "bindings/cli/command_line.h"
#include "bindings/cli/flags.h"
#include "bindings/cli/launch/launch.h"
#include "bindings/cli/local_ranks.h"
#include "bindings/cli/processors.h"
#include "bindings/cli/sizes.h"
#include "bindings/cli/write_file.h"
#include "tutti/bootstrap.h"
#include "tutti/communicator.h"
#include "tutti/config.h"
#include "tutti/cost_model.h"
#include "tutti/version.h"

namespace tutti::cli {
namespace {

CommunicatorOptions OptionsOf(const BenchOptions& options, int local_rank, int devices) {
  CommunicatorOptions communicator;
  if (options.messages) communicator.mapping = CommunicatorOptions::Mapping::kNever;
  if (options.on_device()) communicator.cuda_device = DeviceOf(local_rank, devices);
  return communicator;
}

// A benchmark, beside its cases.
struct BenchJob {
  BenchFlags flags;
  BenchCases cases;
  std::vector<BenchRecord> earlier;
  std::vector<std::string> arguments;  // the words of the command line
  std::string alone_under;             // the launcher that started this rank alone, where no --ranks was given

  // The settings that all cases share.
  const BenchOptions& options() const { return flags.options; }
};

// The TUTTI_* variables that are set, but for those by which `tutti launch` tells a rank who it is and where it meets
// the others: these differ from rank to rank, or from run to run.
absl::StatusOr<std::map<std::string, std::string>> SettingsInForce() {
  const absl::StatusOr<std::vector<ConfigEntry>> entries = EffectiveConfig();
  if (!entries.ok()) return entries.status();
  const std::set<std::string> of_the_launcher = {"TUTTI_RANK",       "TUTTI_SIZE",  "TUTTI_LOCAL_RANK",
                                                 "TUTTI_LOCAL_SIZE", "TUTTI_STORE", "TUTTI_JOB_SECRET_FD",
                                                 "TUTTI_JOB_ID"};
  std::map<std::string, std::string> settings;
  for (const ConfigEntry& entry : *entries) {
    if (entry.origin != "default" && !of_the_launcher.contains(entry.name)) settings[entry.name] = entry.value;
  }
  return settings;
}

absl::StatusOr<BenchAbout> AboutOf(Communicator& communicator, const BenchJob& job) {
  const absl::StatusOr<std::vector<std::string>> hosts =
      ExchangeBlobs(communicator.store(), "bench_hosts", communicator.rank(), communicator.size(), HostName(),
                    absl::Now() + communicator.timeout());
  if (!hosts.ok()) return hosts.status();
  const absl::StatusOr<std::map<std::string, std::string>> settings = SettingsInForce();
  if (!settings.ok()) return settings.status();
  std::vector<std::string> words = {"tutti"};
  words.insert(words.end(), job.arguments.begin(), job.arguments.end());
  const PlanOptions& plans = communicator.plan_options(job.options().memory_kind());
  BenchAbout about{.hosts = {},
                   .rank_hosts = *hosts,
                   .date = absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::Now(), absl::UTCTimeZone()),
                   .version = std::string(Version()),
                   .build = DescribeBuild().in_words(),
                   .command = CommandLine(words),
                   .ranks = communicator.size(),
                   .places = PlacesOf(plans.nodes, communicator.size()),
                   .transport = std::string(communicator.transport()),
                   .links = ToString(*plans.cost_model),
                   .processors = DescribeProcessors(),
                   .settings = *settings};
  for (const std::string& host : *hosts) {
    if (std::find(about.hosts.begin(), about.hosts.end(), host) == about.hosts.end()) about.hosts.push_back(host);
  }
  return about;
}

// The processors of a node, which its ranks share; 0 where that is not known.
int ProcessorsOfNode(const Communicator& communicator, const BenchOptions& options) {
  return communicator.plan_options(options.memory_kind()).cost_model->cores_per_node;
}

bool MayBind(const Communicator& communicator, const BenchOptions& options, const BenchAbout& about) {
  return !options.bind && about.transport != "inproc" &&
         about.places.ranks_per_node <= ProcessorsOfNode(communicator, options);
}

absl::string_view PlaceOf(const BenchFlags& flags) {
  if (!flags.out_of_place) return ", in place where the collective can be";
  return flags.in_place ? ", out of place, and in place where the collective can be" : ", out of place";
}

// The lines that say what is measured, and where; all ranks call BeginningOf.
absl::StatusOr<std::string> BeginningOf(Communicator& communicator, const BenchJob& job, const BenchAbout& about) {
  const BenchOptions& options = job.options();
  const std::vector<std::string>& collectives = job.flags.sweep.collectives;
  std::string text = absl::StrCat(
      "# tutti bench ", collectives.size() == BenchNames().size() ? "all" : absl::StrJoin(collectives, ","), ": ",
      InWords(about.ranks, about.places), ", transport ", about.transport, ", ",
      options.on_device() ? "memory of GPUs" : absl::StrCat(options.buffers, " buffers"), PlaceOf(job.flags),
      options.rewrite ? ", rewritten before each call" : "",
      options.pause > 0 ? absl::StrCat(", a pause of ", options.pause, " s before each call") : "",
      "\n# predicted where ", about.links, "\n");
  if (!job.alone_under.empty()) {
    absl::StrAppend(&text, "# ", job.alone_under,
                    " started one rank, which is measured alone: to start N ranks on this machine, give --ranks N\n");
  }
  const int processors = ProcessorsOfNode(communicator, options);
  if (processors > 0 && about.places.ranks_per_node > processors) {
    absl::StrAppend(&text, "# warning: ", about.places.even(about.ranks) ? "the " : "up to ",
                    about.places.ranks_per_node, " ranks of a node share ", processors,
                    processors == 1 ? " processor" : " processors", ": times have the waits for a processor in them\n");
  }
  const std::string doubt = DoubtOn(DescribeBuild());
  if (!doubt.empty()) absl::StrAppend(&text, "# warning: ", doubt, "\n");
  if (options.on_device()) {
    const absl::StatusOr<std::vector<std::string>> lines = DescribeDevicesOf(communicator);
    if (!lines.ok()) return lines.status();
    absl::StrAppend(&text, "# the GPU of a rank is its local rank modulo the number of GPUs that it sees\n# ",
                    absl::StrJoin(*lines, "\n# "), "\n# calls travel by ", communicator.gpu_transport(), "\n");
  }
  for (const std::string& reason : job.cases.left_out) absl::StrAppend(&text, "# not measured: ", reason, "\n");
  return text;
}

// Whether rank 0 could create its files, which all ranks learn: without them nothing is measured. All ranks call
// FilesAreOpen, the others with OK.
absl::StatusOr<bool> FilesAreOpen(Communicator& communicator, const absl::Status& opened) {
  const absl::StatusOr<std::vector<std::string>> answers =
      ExchangeBlobs(communicator.store(), "bench_files", communicator.rank(), communicator.size(),
                    opened.ok() ? "open" : "failed", absl::Now() + communicator.timeout());
  if (!answers.ok()) return answers.status();
  return answers->front() == "open";
}

// Runs one rank; rank 0 prints and writes. The number of wrong elements, over all ranks, is in rank 0's result.
absl::StatusOr<std::int64_t> RunRank(Communicator& communicator, const BenchJob& job) {
  const absl::StatusOr<BenchAbout> about = AboutOf(communicator, job);
  if (!about.ok()) return about.status();
  const absl::StatusOr<std::string> beginning = BeginningOf(communicator, job, *about);
  if (!beginning.ok()) return beginning.status();
  if (communicator.rank() != 0) {
    const absl::StatusOr<bool> open = FilesAreOpen(communicator, absl::OkStatus());
    if (!open.ok()) return open.status();
    if (!*open) return 0;  // rank 0 says why
    const absl::Status status = RunBench(communicator, job.cases.cases, job.flags.repeats, {});
    return status.ok() ? absl::StatusOr<std::int64_t>(0) : status;
  }
  FILE* const table = job.flags.outputs.rows_to_output() ? stderr : stdout;
  TableColumns columns = job.flags.columns();
  columns.may_bind = MayBind(communicator, job.options(), *about);
  BenchRecorder recorder(job.flags.outputs, job.earlier, *about, job.flags.repeats, columns, table);
  const absl::Status opened = recorder.Open();
  const absl::StatusOr<bool> told = FilesAreOpen(communicator, opened);
  if (!opened.ok()) return opened;
  if (!told.ok()) return told.status();
  std::fprintf(table, "%s%s\n", beginning->c_str(), TableHeading(columns).c_str());
  const absl::Status measured = RunBench(
      communicator, job.cases.cases, job.flags.repeats,
      {[&](const BenchRow& row) { recorder.Add(row); }, [&](const std::string& note) { recorder.Note(note); }});
  // The rows before an error have their verdict, and a whole document, too.
  const absl::Status finished = recorder.Finish();
  if (!measured.ok()) return measured;
  if (!finished.ok()) return finished;
  return recorder.wrong();
}

absl::StatusOr<int> ExitCode(const absl::StatusOr<std::int64_t>& wrong) {
  if (!wrong.ok()) return wrong.status();
  return *wrong == 0 ? 0 : 1;
}

absl::StatusOr<int> RunThreads(const BenchJob& job) {
  const BenchOptions& options = job.options();
  absl::StatusOr<int> devices = 0;
  if (options.on_device()) devices = CheckDevices(options.ranks);
  if (!devices.ok()) return devices.status();
  absl::StatusOr<std::int64_t> wrong = 0;
  const absl::Status run = RunLocalRanks(
      options.ranks, options.transport, [&](Rank rank) { return OptionsOf(options, rank, *devices); },
      [&](Communicator& communicator) {
        absl::StatusOr<std::int64_t> result = RunRank(communicator, job);
        if (communicator.rank() == 0) wrong = result;
        return result.status();
      });
  if (!run.ok()) return run;
  return ExitCode(wrong);
}

absl::StatusOr<int> RunProcess(const BenchJob& job) {
  const BenchOptions& options = job.options();
  absl::StatusOr<int> devices = 0;
  // Launchers may show each rank a GPU of its own, so that only NCCL knows whether two ranks share one.
  if (options.on_device()) devices = CheckDevices(1);
  if (!devices.ok()) return devices.status();
  const absl::StatusOr<Bootstrap> bootstrap = BootstrapFromEnvironment();
  if (!bootstrap.ok()) return WithHintOnRefusal(bootstrap.status());
  // By now the ranks have told each other which of them share a machine. Threads that start later are bound, too.
  const Identity& identity = bootstrap->identity;
  const absl::Status bound = options.bind ? BindToShare(identity.local_rank, identity.local_size) : absl::OkStatus();
  if (!bound.ok()) return bound;
  if (absl::Status agreed = CheckAgreementOnFlags(*bootstrap, job.flags); !agreed.ok()) return agreed;
  const absl::StatusOr<std::unique_ptr<Communicator>> communicator =
      Communicator::Create(*bootstrap, OptionsOf(options, bootstrap->identity.local_rank, *devices));
  if (!communicator.ok() && options.on_device()) {
    return WithHintOnSharing(communicator.status(), bootstrap->identity, *devices);
  }
  if (!communicator.ok()) return communicator.status();
  return ExitCode(RunRank(**communicator, job));
}

// Launches this command again as the program of every rank.
absl::StatusOr<int> LaunchRanks(const BenchOptions& options, const std::vector<std::string>& arguments) {
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return absl::NotFoundError(absl::StrCat("cannot find this program: /proc/self/exe: ", error.message()));
  if (options.on_device()) {
    if (absl::Status usable = CheckDevicesOfRanksToStart(options.ranks); !usable.ok()) return usable;
  }
  LaunchOptions launch{.ranks = options.ranks, .command = {self.string()}, .tells_threads = false};
  launch.command.insert(launch.command.end(), arguments.begin(), arguments.end());
  return Launch(launch);
}

// InvalidArgument when a flag was given that means nothing to the one collective that is measured.
absl::Status CheckFlagsOfBench(const std::vector<std::string>& collectives, const std::vector<std::string>& given) {
  if (collectives.size() > 1) return absl::OkStatus();
  const absl::StatusOr<Collective> collective = ParseCollective(collectives.front());
  return CheckFlags(collective.value_or(Collective::kSend), given);
}

absl::StatusOr<int> Bench(BenchJob& job, bool ranks_given) {
  const BenchOptions& options = job.options();
  if (options.min_bytes > options.max_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("--min-bytes ", FormatBytes(options.min_bytes),
                                                   " is more than --max-bytes ", FormatBytes(options.max_bytes)));
  }
  if (options.transport != "auto") setenv("TUTTI_TRANSPORT", options.transport.c_str(), 1);
  const absl::StatusOr<Identity> identity = IdentityFromEnvironment();
  if (!identity.ok()) return identity.status();
  // A launcher that starts one process may have started the shell in which the user now asks for more.
  const bool alone = identity->launcher != "single" && identity->size == 1;
  const bool launched = identity->launcher != "single" && !(alone && ranks_given && options.ranks > 1);
  if (alone && !ranks_given) job.alone_under = identity->launcher;
  const int ranks = launched ? identity->size : options.ranks;
  if (ranks_given && ranks != options.ranks) {
    return absl::InvalidArgumentError(absl::StrCat("--ranks ", options.ranks, ", but ", identity->launcher, " started ",
                                                   ranks, " ranks: leave --ranks out"));
  }
  if (options.bind && options.transport == "inproc") {
    return absl::InvalidArgumentError(
        "--bind is for processes, and --transport inproc has threads of one: leave --bind out");
  }
  if (options.traffic.root >= ranks) {
    return absl::InvalidArgumentError(absl::StrCat("--root ", options.traffic.root, " must be in 0…", ranks - 1));
  }
  if (options.transport == "inproc" && ranks > kMaxLocalRanks) {
    return absl::InvalidArgumentError(absl::StrCat("--ranks ", ranks, ": --transport inproc starts threads of this ",
                                                   "process, for at most ", kMaxLocalRanks, " ranks"));
  }
  absl::StatusOr<BenchCases> cases = CasesOfFlags(job.flags, ranks);
  if (!cases.ok()) return cases.status();
  job.cases = *std::move(cases);
  if (!launched && options.transport != "inproc") {
    if (absl::Status shared = CheckFilesOfRanks(job.flags.outputs); !shared.ok()) return shared;
  }
  if (identity->rank == 0) {
    absl::StatusOr<std::vector<BenchRecord>> earlier = CheckOutputs(job.flags.outputs);
    if (!earlier.ok()) return earlier.status();
    job.earlier = *std::move(earlier);
  }
  if (options.transport == "inproc") {
    if (!launched) return RunThreads(job);
    return absl::InvalidArgumentError(absl::StrCat("--transport inproc is for threads of one process, but ",
                                                   identity->launcher, " started processes: choose ucx or auto"));
  }
  return launched ? RunProcess(job) : LaunchRanks(options, job.arguments);
}

absl::StatusOr<int> CompareEarlier(const BenchOutputs& outputs) {
  for (const NamedFile& file :
       {NamedFile{"--json", outputs.json}, NamedFile{"--jsonl", outputs.jsonl}, NamedFile{"--csv", outputs.csv}}) {
    if (file.path.empty()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(file.flag, " ", file.path, ": nothing is measured without a collective, so there are no rows to ",
                     "write; name a collective, or leave ", file.flag, " out"));
  }
  const absl::StatusOr<std::vector<BenchRecord>> records = CheckOutputs(outputs);
  if (!records.ok()) return records.status();
  if (absl::Status compared = CompareRecords(outputs, *records); !compared.ok()) return compared;
  return 0;
}

}  // namespace

void AddBench(CLI::App& app, Invocation& invocation) {
  CLI::App* bench = app.add_subcommand("bench", "Measure collectives, and check their results");
  auto job = std::make_shared<BenchJob>();
  AddBenchFlags(*bench, job->flags);
  RefuseFlagsOfOthers(*bench);
  bench->footer(
      "Columns are those of nccl-tests (with -a 3): time is the mean of the calls, p50 their median, each on the "
      "slowest\n"
      "rank: docs/benchmarking.md. Under a launcher (mpirun, srun, torchrun) its ranks are measured, on any hosts:\n"
      "docs/several_machines.md.\n"
      "  tutti bench all_reduce --ranks 2 -b 4 -e 256M -f 4 --json mapped.json --csv mapped.csv\n"
      "  tutti bench all_reduce --ranks 2 --messages --json messages.json --compare mapped.json --plot both.svg\n"
      "  tutti bench all_reduce --dtype all --op all --schedule all --in-place --out-of-place\n"
      "On GPUs: tutti bench all_reduce --ranks 8 --device cuda --peer nccl");
  bench->callback([job, bench, &invocation] {
    if (job->flags.sweep.collectives.empty() && job->flags.outputs.compare.empty()) {
      throw CLI::RequiredError("collective");
    }
    invocation.action = [job, bench, &invocation]() -> absl::StatusOr<int> {
      const BenchFlags& flags = job->flags;
      job->arguments = invocation.arguments;
      if (flags.sweep.collectives.empty()) return CompareEarlier(flags.outputs);
      std::vector<std::string> given = GivenAmong(*bench, {"--op", "--root"});
      // With --out-of-place, too, what has no in-place form is measured out of place, as the user has asked for.
      if (flags.in_place && !flags.out_of_place) given.emplace_back("--in-place");
      if (absl::Status used = CheckFlagsOfBench(flags.sweep.collectives, given); !used.ok()) return used;
      return Bench(*job, bench->count("--ranks") > 0);
    };
  });
}

}  // namespace tutti::cli
