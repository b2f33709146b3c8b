// The subcommands of `tutti`. The file <name>/command.cc adds the subcommand <name> to the parser; info.cc, which is
// all of `tutti info`, needs no folder.
#ifndef TUTTI_BINDINGS_CLI_COMMAND_H_
#define TUTTI_BINDINGS_CLI_COMMAND_H_

#include <functional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"

namespace tutti::cli {

// What the user typed, and what is to be done about it once the whole line has been understood.
struct Invocation {
  std::vector<std::string> arguments;           // the words of the command line, without the program's name
  std::function<absl::StatusOr<int>()> action;  // returns the exit code
  bool runs_without_extensions = false;         // although one of them failed, which the action returns as its error
};

void AddAdvise(CLI::App& app, Invocation& invocation);
void AddLaunch(CLI::App& app, Invocation& invocation);
void AddCheck(CLI::App& app, Invocation& invocation);
void AddBench(CLI::App& app, Invocation& invocation);
void AddPlan(CLI::App& app, Invocation& invocation);
void AddReplay(CLI::App& app, Invocation& invocation);
void AddInfo(CLI::App& app, Invocation& invocation);
void AddDocs(CLI::App& app, Invocation& invocation);

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_COMMAND_H_
