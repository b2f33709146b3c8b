#include "bindings/cli/launch/hosts.h"

#include <cerrno>
#include <cstdint>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "base/exactly.h"
#include "bindings/cli/command_line.h"
#include "bindings/cli/flags.h"

namespace tutti::cli {
namespace {

// Where a host has the secret when TUTTI_JOB_SECRET_FILE names no file; a word for `sh`.
constexpr char kUsualSecretFile[] = "\"$HOME/.tutti_job_secret\"";

// A line without its comment, in words.
absl::StatusOr<HostRanks> ParseHost(const std::vector<absl::string_view>& words) {
  const bool is_ipv6 = absl::StartsWith(words[0], "[") && absl::EndsWith(words[0], "]");
  const auto colons = absl::c_count(words[0], ':');
  if (colons > 1 && !is_ipv6) {
    return absl::InvalidArgumentError("write an IPv6 address in brackets: [2001:db8::1] slots=4");
  }
  HostRanks one{.host = std::string(words[0])};
  std::string slots = words.size() > 1 ? std::string(words[1]) : "slots=1";
  if (words.size() == 1 && colons == 1 && !is_ipv6) {
    const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(words[0], ':');
    one.host = std::string(parts.first);
    slots = absl::StrCat("slots=", parts.second);
  }
  absl::string_view number = slots;
  const bool is_plain = !one.host.empty() && one.host.find_first_of("'\"$`\\;&|<>() ") == std::string::npos &&
                        (is_ipv6 || !absl::StrContains(one.host, ':'));
  if (words.size() <= 2 && is_plain && absl::ConsumePrefix(&number, "slots=") && absl::SimpleAtoi(number, &one.ranks) &&
      one.ranks >= 1 && one.ranks <= kMaxRanks) {
    return one;
  }
  return absl::InvalidArgumentError("write a host, and how many ranks it has: node1 slots=4, or node1:4");
}

// Whether `host` is another machine on each host. Bootstrap takes such a name as it is, since it may be the end of a
// tunnel, so that no rank says that the name is a mistake.
bool IsLoopback(absl::string_view host) {
  return host == "localhost" || absl::StartsWith(host, "127.") || host == "[::1]";
}

// A line that tells how ranks of all hosts find the first host; empty where they do.
std::string AdviceOnMeeting(absl::Span<const HostRanks> hosts) {
  const std::string& first = hosts.front().host;
  const auto other = absl::c_find_if(hosts, [](const HostRanks& one) { return !IsLoopback(one.host); });
  if (!IsLoopback(first) || other == hosts.end()) return "";
  return absl::StrCat("# The ranks meet at ", first, ", which is another machine on each host: write a name by which ",
                      other->host, " finds the first host, unless a tunnel leads there.\n");
}

std::string RanksFrom(int first, int count) {
  return count == 1 ? absl::StrCat("rank ", first) : absl::StrCat("ranks ", first, " to ", first + count - 1);
}

// The name of the job, which differs where the program or its arguments do: ranks of an earlier try that still wait for
// the others meet no ranks of the next one.
std::string JobId(const std::string& meeting, const LaunchOptions& options) {
  const auto number = static_cast<std::uint32_t>(std::hash<std::string>{}(CommandLine(options.command)));
  return absl::StrCat("hosts-", meeting, "-", absl::Hex(number, absl::kZeroPad8));
}

std::string CommandOf(const HostRanks& one, int first, int size, const std::string& meeting,
                      const std::string& secret_file, const LaunchOptions& options) {
  const std::string script =
      absl::StrCat("unset TUTTI_STORE TUTTI_JOB_SECRET_FD; export TUTTI_SIZE=", size, " TUTTI_RENDEZVOUS=", meeting,
                   " TUTTI_JOB_ID=", JobId(meeting, options), " TUTTI_JOB_SECRET_FILE=", secret_file, "; exec \"$@\"");
  std::vector<std::string> words = {"tutti",        "launch",           "-n", absl::StrCat(one.ranks),
                                    "--first-rank", absl::StrCat(first)};
  if (options.tag_output) words.push_back("--tag-output");
  if (options.bind) words.push_back("--bind");
  if (options.grace != LaunchOptions().grace) {
    words.insert(words.end(), {"--grace", Exactly(absl::ToDoubleSeconds(options.grace))});
  }
  words.insert(words.end(), {"--", "sh", "-c", script, "sh"});
  words.insert(words.end(), options.command.begin(), options.command.end());
  return CommandLine(words);
}

}  // namespace

absl::StatusOr<std::vector<HostRanks>> ReadHosts(const std::string& file) {
  std::ifstream in(file);
  if (!in) return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", file));
  std::vector<HostRanks> hosts;
  std::map<std::string, int> lines;  // of the hosts
  int ranks = 0;
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    const std::vector<absl::string_view> words =
        absl::StrSplit(absl::string_view(line).substr(0, line.find('#')), absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
    if (words.empty()) continue;
    const auto refuse = [&](const auto&... why) {
      return absl::InvalidArgumentError(absl::StrCat("--hosts ", file, ", line ", number, ": '", line, "': ", why...));
    };
    absl::StatusOr<HostRanks> one = ParseHost(words);
    if (!one.ok()) return refuse(one.status().message());
    if (const auto [first, is_new] = lines.emplace(one->host, number); !is_new) {
      // Each command would count its own ranks from 0, and the ranks of both would take the same GPUs.
      return refuse(one->host, " is in line ", first->second, ", too: write one line with the ranks of both");
    }
    ranks += one->ranks;
    if (ranks > kMaxRanks)
      return refuse("the lines up to here name ", ranks, " ranks, and a job has at most ", kMaxRanks);
    hosts.push_back(*std::move(one));
  }
  if (hosts.empty()) return absl::InvalidArgumentError(absl::StrCat("--hosts ", file, " names no host"));
  return hosts;
}

std::string CommandsOfHosts(absl::Span<const HostRanks> hosts, int port, const std::string& secret_file,
                            const LaunchOptions& options) {
  int size = 0;
  for (const HostRanks& one : hosts) size += one.ranks;
  std::string text = "# Run each command on its host. Before, ";
  if (secret_file.empty()) {
    absl::StrAppend(&text, "make the secret of the job, and copy the file to every host:\n",
                    "#   (umask 077; openssl rand -hex 32 > ", kUsualSecretFile, ")\n");
  } else {
    absl::StrAppend(&text, "copy the file that TUTTI_JOB_SECRET_FILE names to the same path on every host.\n");
  }
  absl::StrAppend(&text, AdviceOnMeeting(hosts));
  const std::string secret_word = secret_file.empty() ? kUsualSecretFile : CommandLine({secret_file});
  int first = 0;
  for (const HostRanks& one : hosts) {
    absl::StrAppend(&text, "# ", one.host, ": ", RanksFrom(first, one.ranks), "\n",
                    CommandOf(one, first, size, absl::StrCat(hosts.front().host, ":", port), secret_word, options),
                    "\n");
    first += one.ranks;
  }
  return text;
}

}  // namespace tutti::cli
