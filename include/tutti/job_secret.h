// The secret that the ranks of one job share: whoever holds it may join the job.
#ifndef TUTTI_JOB_SECRET_H_
#define TUTTI_JOB_SECRET_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tutti {

// 32 random bytes, written as 64 hexadecimal digits wherever they are text (`openssl rand -hex 32` makes one).
// Never put a secret on a command line: every user of the machine can read the secret there.
struct JobSecret {
  std::array<std::uint8_t, 32> bytes{};
};

// A fresh secret from the system's random source.
JobSecret RandomJobSecret();

std::string ToHex(const JobSecret& secret);
// Reads the 64 digits, ignoring white space around them. InvalidArgument says what is wrong, without repeating the
// text.
absl::StatusOr<JobSecret> ParseJobSecret(absl::string_view hex);

// The secret that this process was given, or nothing if none was given. The sources, in this order:
//   TUTTI_JOB_SECRET_FD     an inherited descriptor of a file or memfd; read from its start, then marked close-on-exec
//   TUTTI_JOB_SECRET_FILE   a file that only its owner may read; PermissionDenied when others may
//   TUTTI_JOB_SECRET        the digits themselves; other processes of the same user can see them
absl::StatusOr<std::optional<JobSecret>> JobSecretFromEnvironment();

}  // namespace tutti

#endif  // TUTTI_JOB_SECRET_H_
