// The command `tutti`.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>
#include <string>

#include "CLI/CLI.hpp"
#include "bindings/cli/command.h"
#include "bindings/cli/explain_error.h"
#include "tutti/extension.h"
#include "tutti/version.h"

namespace {

// Exit codes as of most Unix tools: 2 when the command line is wrong or asks for what there is not, 1 for other
// failures.
constexpr int kUsageError = 2;

// The exit code of the command; ResourceExhausted where the machine, or `ulimit -v`, has not enough memory for the
// command.
absl::StatusOr<int> AnswerOf(const tutti::cli::Invocation& invocation) {
  try {
    return invocation.action();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(
        "there is not enough memory; ask for fewer ranks or shorter buffers, or raise ulimit -v");
  }
}

int Run(int argc, char** argv) {
  CLI::App app("Keeps the replicas of a model in step: starts ranks, measures collectives, shows plans.", "tutti");
  tutti::cli::Invocation invocation{{argv + 1, argv + argc}, nullptr};
  app.set_version_flag("--version", std::string(tutti::Version()));
  app.require_subcommand(1);
  tutti::cli::AddLaunch(app, invocation);
  tutti::cli::AddBench(app, invocation);
  tutti::cli::AddPlan(app, invocation);
  tutti::cli::AddCheck(app, invocation);
  tutti::cli::AddAdvise(app, invocation);
  tutti::cli::AddReplay(app, invocation);
  tutti::cli::AddInfo(app, invocation);
  tutti::cli::AddDocs(app, invocation);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // after --help or --version
    std::fprintf(stderr, "%s\n", tutti::cli::ExplainError(app, error).c_str());
    return kUsageError;
  }
  // Without its extensions a command would do something else than what was asked for, if it did anything.
  const absl::Status extended = tutti::ExtensionStatus();
  const bool runs = extended.ok() || invocation.runs_without_extensions;
  const absl::StatusOr<int> code = runs ? AnswerOf(invocation) : extended;
  if (code.ok()) return *code;
  std::fprintf(stderr, "tutti: %s\n", std::string(code.status().message()).c_str());
  const bool usage = absl::IsInvalidArgument(code.status()) || absl::IsNotFound(code.status()) ||
                     absl::IsUnimplemented(code.status()) || !extended.ok();
  return usage ? kUsageError : 1;
}

// Opens standard input, output and error where the command was started without one of them: otherwise a descriptor that
// the command makes later would become, say, standard output, also of the ranks.
void HoldStandardDescriptors() {
  int fd = -1;
  do {
    fd = ::open("/dev/null", O_RDWR);
  } while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd >= 0) ::close(fd);
}

// A command whose standard output could not be written (a full disk) must not end well.
int CheckOutput(int code) {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  // The reason of a write that failed earlier is not known any more.
  const std::string reason = errno != 0 ? std::string(": ") + std::strerror(errno) : "";
  std::fprintf(stderr, "tutti: cannot write to standard output%s\n", reason.c_str());
  return code == 0 ? 1 : code;
}

}  // namespace

int main(int argc, char** argv) {
  HoldStandardDescriptors();
  return CheckOutput(Run(argc, argv));
}
