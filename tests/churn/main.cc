// The churn: worlds that are made, used at random, and lose ranks, over and over. See docs/testing.md.
#include <signal.h>
#include <sys/prctl.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/churn/loop.h"
#include "tests/churn/report.h"
#include "tests/churn/round.h"
#include "tests/churn/supervisor.h"

namespace tutti::churn {
namespace {

struct Options {
  std::string path = "mapped";
  std::string mode = "rounds";
  std::string fault;
  std::uint64_t seed = 1;
  double seconds = 60;
  int ranks = 0;
  int rounds = 0;
  int only = -1;
  int count = 1000;
  double news = absl::ToDoubleSeconds(NewsBounds().of_kill);
  double news_of_stop = absl::ToDoubleSeconds(NewsBounds().of_stop);
};

// The command line that runs the round again.
std::string CommandFor(const Options& options, int number) {
  std::string command = absl::StrCat("churn --path ", options.path, " --seed ", options.seed, " --round ", number);
  if (options.ranks > 0) absl::StrAppend(&command, " --ranks ", options.ranks);
  if (!options.fault.empty()) absl::StrAppend(&command, " --fault ", options.fault);
  return command;
}

void Print(const std::vector<Finding>& found) {
  for (const Finding& finding : found) {
    std::printf("  %s: %s\n", std::string(Name(finding.kind)).c_str(), finding.text.c_str());
  }
}

int RunRounds(const Options& options, const Fixed& fixed, const std::string& directory) {
  Report report;
  // A number of rounds is made in whatever time the rounds take: fewer would pass without having tested.
  const int counted = options.rounds > 0 ? options.rounds : options.only >= 0 ? 1 : 0;
  const int most = counted > 0 ? counted : std::numeric_limits<int>::max();
  const absl::Time end = counted > 0 ? absl::InfiniteFuture() : absl::Now() + absl::Seconds(options.seconds);
  for (int i = 0; i < most && absl::Now() < end; ++i) {
    const int number = options.only >= 0 ? options.only : i;
    const Round round = RoundOf(fixed, number);
    const std::vector<Finding> found = RunRound(round, directory, report);
    if (!found.empty()) {
      std::printf("%s: FAILED; to run it again: %s\n", Describe(round).c_str(), CommandFor(options, number).c_str());
      Print(found);
    } else if (options.only >= 0) {
      std::printf("%s: ok\n", Describe(round).c_str());
    }
    std::fflush(stdout);
  }
  std::printf("path %s, seed %llu: %s", options.path.c_str(), static_cast<unsigned long long>(options.seed),
              report.ToString().c_str());
  const std::vector<Finding> late = report.LateNews({absl::Seconds(options.news), absl::Seconds(options.news_of_stop)});
  Print(late);
  return report.failed_rounds == 0 && late.empty() ? 0 : 1;
}

int RunLoops(const Options& options, const Fixed& fixed, const std::string& directory) {
  const Looped looped = options.mode == "groups" ? Looped::kGroups : Looped::kSynchronizers;
  Round round{.seed = fixed.seed, .path = fixed.path, .ranks = fixed.ranks > 0 ? fixed.ranks : 3};
  round.timeout = absl::Seconds(20);
  round.largest_count = 2000;
  const absl::Time begin = absl::Now();
  const LoopResult result = RunLoop(looped, options.count, round, directory);
  for (const std::string& usage : result.usage) std::printf("  %s\n", usage.c_str());
  Print(result.found);
  std::printf("path %s, %d ranks, seed %llu: %d %s in %.1f s: %s\n", options.path.c_str(), round.ranks,
              static_cast<unsigned long long>(options.seed), options.count, options.mode.c_str(),
              absl::ToDoubleSeconds(absl::Now() - begin), result.found.empty() ? "ok" : "FAILED");
  return result.found.empty() ? 0 : 1;
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app{"Makes worlds, uses them at random, and lets their ranks fail. Exits with 1 when anything is wrong."};
  app.add_option("--path", options.path, "how bytes move: mapped, shared_memory, tcp, inproc (no faults)")
      ->check(CLI::IsMember({"mapped", "shared_memory", "tcp", "inproc"}));
  app.add_option("--mode", options.mode, "rounds; or loops of groups or synchronizers, made, used once and destroyed")
      ->check(CLI::IsMember({"rounds", "groups", "synchronizers"}));
  app.add_option("--fault", options.fault, "only rounds with: none, pause, kill, kill_join, stop, leave, abort")
      ->check(CLI::IsMember({"none", "pause", "kill", "kill_join", "stop", "leave", "abort"}));
  app.add_option("--seed", options.seed, "seed of all random decisions");
  app.add_option("--seconds", options.seconds, "seconds during which rounds are begun");
  app.add_option("--rounds", options.rounds, "so many rounds, however long they take; 0: as many as --seconds allows")
      ->excludes("--seconds");
  app.add_option("--round", options.only, "only this round, once, or as often as --rounds says");
  app.add_option("--ranks", options.ranks, "number of ranks; 0: each round draws 2 to 5")->check(CLI::Range(0, 16));
  app.add_option("--count", options.count, "number of groups or synchronizers that a loop makes")
      ->check(CLI::PositiveNumber);
  app.add_option(
         "--news", options.news,
         "seconds within which 99 of 100 survivors must have the news of a kill, or the run fails; a quiet machine "
         "should keep 1")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--news-of-stop", options.news_of_stop,
                 "the same for the news of a stop, from the survivor's deadline on; a quiet machine should keep 0.1")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);

  // Processes that a rank starts and leaves behind become children of this process, which finds them.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  std::string pattern = (std::filesystem::temp_directory_path() / "tutti_churn_XXXXXX").string();
  const std::string directory = mkdtemp(pattern.data());
  const Fixed fixed = {options.seed, *ParsePath(options.path), options.ranks, options.fault};
  const int code =
      options.mode == "rounds" ? RunRounds(options, fixed, directory) : RunLoops(options, fixed, directory);
  std::filesystem::remove_all(directory);
  return code;
}

}  // namespace
}  // namespace tutti::churn

int main(int argc, char** argv) { return tutti::churn::Main(argc, argv); }
