#include "tutti/job_secret.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/config.h"
#include "store/mac.h"
#include "store/private_file.h"

namespace tutti {
namespace {

constexpr std::size_t kMaxSecretText = 256;

// Reads `fd` from the start of its file with pread, which moves no file position: the other ranks of the node may share
// the descriptor.
absl::StatusOr<std::string> ReadDescriptor(int fd) {
  std::string text(kMaxSecretText, '\0');
  const ssize_t got = ::pread(fd, text.data(), text.size(), 0);
  if (got < 0)
    return absl::InvalidArgumentError(absl::StrCat("cannot read descriptor ", fd, ": ", std::strerror(errno)));
  text.resize(static_cast<std::size_t>(got));
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  return text;
}

absl::StatusOr<std::optional<JobSecret>> From(absl::string_view variable, absl::StatusOr<std::string> text) {
  absl::StatusOr<JobSecret> secret = text.ok() ? ParseJobSecret(*text) : text.status();
  if (secret.ok()) return *secret;
  return absl::Status(secret.status().code(), absl::StrCat(variable, ": ", secret.status().message()));
}

}  // namespace

JobSecret RandomJobSecret() {
  JobSecret secret;
  FillRandom(absl::MakeSpan(secret.bytes));
  return secret;
}

std::string ToHex(const JobSecret& secret) { return absl::BytesToHexString(View(secret.bytes)); }

absl::StatusOr<JobSecret> ParseJobSecret(absl::string_view hex) {
  hex = absl::StripAsciiWhitespace(hex);
  JobSecret secret;
  if (hex.size() != 2 * secret.bytes.size()) {
    return absl::InvalidArgumentError(absl::StrCat("a job secret has 64 hexadecimal digits, not ", hex.size()));
  }
  if (!std::all_of(hex.begin(), hex.end(), [](unsigned char c) { return absl::ascii_isxdigit(c); })) {
    return absl::InvalidArgumentError("a job secret has 64 hexadecimal digits, and nothing else");
  }
  const std::string bytes = absl::HexStringToBytes(hex);
  std::copy(bytes.begin(), bytes.end(), secret.bytes.begin());
  return secret;
}

absl::StatusOr<std::optional<JobSecret>> JobSecretFromEnvironment() {
  const absl::StatusOr<Config>& config = LoadConfig();
  if (!config.ok()) return config.status();
  if (config->job_secret_fd) {
    absl::StatusOr<std::optional<JobSecret>> secret =
        From("TUTTI_JOB_SECRET_FD", ReadDescriptor(*config->job_secret_fd));
    if (secret.ok()) return secret;
    return absl::Status(secret.status().code(),
                        absl::StrCat(secret.status().message(),
                                     "; a program between tutti launch and this one may have closed the descriptor, as "
                                     "Python's subprocess does without close_fds=False, and as sudo does"));
  }
  if (!config->job_secret_file.empty()) {
    return From("TUTTI_JOB_SECRET_FILE", ReadPrivateFile(config->job_secret_file, kMaxSecretText));
  }
  if (!config->job_secret.empty()) return From("TUTTI_JOB_SECRET", config->job_secret);
  return std::nullopt;
}

}  // namespace tutti
