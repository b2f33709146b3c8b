// tutti launch -n 4 -- program arguments: starts ranks on this machine.
#include <memory>

#include "bindings/cli/command.h"
#include "bindings/cli/flags.h"
#include "bindings/cli/launch.h"

namespace tutti::cli {

void AddLaunch(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<LaunchOptions>();
  CLI::App* launch = app.add_subcommand("launch", "Start N ranks of a program on this machine");
  launch->add_option("-n,--ranks", options->ranks, "How many ranks")
      ->required()
      ->check(WholeNumberWithin(1, kMaxRanks));
  launch->add_flag("--tag-output", options->tag_output, "Put the rank in front of every line of output");
  launch->add_option("command", options->command, "-- program and its arguments")->required();
  launch->positionals_at_end();
  launch->footer(
      "Example: tutti launch -n 4 -- ./train --epochs 3\n"
      "The first rank that fails ends all others; its exit code becomes that of this command. SIGINT, SIGTERM, "
      "SIGHUP,\n"
      "SIGUSR1 and SIGUSR2 are passed on. When this command is killed, the ranks and what they have started are "
      "killed.\n"
      "With --tag-output this command waits for a slow reader of the output: without limit when the job succeeds;\n"
      "when the job fails, until the reader has read nothing for 5 s.");
  launch->callback([options, &invocation] { invocation.action = [options] { return Launch(*options); }; });
}

}  // namespace tutti::cli
