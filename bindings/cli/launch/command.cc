// tutti launch -n 4 -- program arguments: starts ranks on this machine.
#include "bindings/cli/command.h"

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/time/time.h"
#include "bindings/cli/flags.h"
#include "bindings/cli/launch/hosts.h"
#include "bindings/cli/launch/launch.h"

namespace tutti::cli {
namespace {

struct LaunchFlags {
  LaunchOptions options;
  double grace_s = absl::ToDoubleSeconds(LaunchOptions().grace);
  std::string hosts;  // a file; empty: ranks are started on this machine
  int port = 29400;
};

absl::StatusOr<int> PrintCommandsOfHosts(const LaunchFlags& flags) {
  const absl::StatusOr<std::vector<HostRanks>> hosts = ReadHosts(flags.hosts);
  if (!hosts.ok()) return hosts.status();
  const char* const secret_file = std::getenv("TUTTI_JOB_SECRET_FILE");
  std::fputs(CommandsOfHosts(*hosts, flags.port, secret_file != nullptr ? secret_file : "", flags.options).c_str(),
             stdout);
  return 0;
}

// The last `count` words of the command line, as they were typed: CLI11 takes a word [a,b] for a list of two.
std::vector<std::string> LastWords(const std::vector<std::string>& words, std::ptrdiff_t count) {
  return {words.end() - count, words.end()};
}

}  // namespace

void AddLaunch(CLI::App& app, Invocation& invocation) {
  auto flags = std::make_shared<LaunchFlags>();
  LaunchOptions* const options = &flags->options;
  CLI::App* launch = app.add_subcommand("launch", "Start N ranks of a program on this machine");
  CLI::Option* const ranks =
      launch->add_option("-n,--ranks", options->ranks, "How many ranks")->check(WholeNumberWithin(1, kMaxRanks));
  CLI::Option* const hosts =
      AddParsed(*launch, "--hosts", flags->hosts, ParseFile, "FILE", "",
                "Start nothing, and print the command to run on each host of this file (lines `node1 slots=4`)")
          ->excludes(ranks);
  launch->add_option("--port", flags->port, "With --hosts: a port of the first host, at which the ranks meet")
      ->check(WholeNumberWithin(1, 65535))
      ->needs(hosts)
      ->capture_default_str();
  launch
      ->add_option(
          "--first-rank", options->first_rank,
          "The rank, in a job on several hosts, of the first process here; the commands that --hosts prints have it")
      ->check(WholeNumberWithin(0, kMaxRanks - 1))
      ->needs(ranks)
      ->capture_default_str();
  launch->add_flag("--tag-output", options->tag_output,
                   "Put the rank in front of every line of output; a line of more than 1 MiB is cut");
  launch->add_flag("--bind", options->bind,
                   "Bind each rank to an equal share of the processors, so that no two ranks run on one");
  launch
      ->add_option("--grace", flags->grace_s,
                   "Seconds that ranks have from when they are told to end, by a signal or as another rank has failed, "
                   "until they are killed")
      ->check(NumberWithin(0, 1e6))
      ->capture_default_str();
  CLI::Option* const command =
      launch->add_option("command", options->command, "-- program and its arguments")->required();
  launch->positionals_at_end();
  launch->footer(
      "Example: tutti launch -n 4 -- ./train --epochs 3\n"
      "On several hosts: tutti launch --hosts hosts.txt -- ./train --epochs 3 prints the command for each.\n"
      "The first rank that fails ends all others; its exit code becomes that of this command. SIGINT, SIGTERM, "
      "SIGHUP,\n"
      "SIGUSR1 and SIGUSR2 are passed on; after one of the first three the exit code is 128 + its number, unless a "
      "rank\n"
      "fails. When this command is killed, the ranks and what they have started are killed.\n"
      "Ctrl-Z (SIGTSTP) stops this command alone, and not the ranks, whose deadlines would pass meanwhile.\n"
      "Ranks have OMP_NUM_THREADS, the number of threads of numeric libraries: yours, or the processors divided by N.\n"
      "With --tag-output this command waits for a slow reader of the output: without limit when the job succeeds;\n"
      "when the job fails, until the reader has read nothing for 5 s.");
  launch->callback([launch, flags, ranks, hosts, command, &invocation] {
    if (ranks->count() + hosts->count() == 0) throw CLI::RequiredError("--ranks");
    flags->options.grace = absl::Seconds(flags->grace_s);
    flags->options.command = LastWords(invocation.arguments, absl::c_count(launch->parse_order(), command));
    invocation.action = [flags] {
      return flags->hosts.empty() ? Launch(flags->options) : PrintCommandsOfHosts(*flags);
    };
  });
}

}  // namespace tutti::cli
