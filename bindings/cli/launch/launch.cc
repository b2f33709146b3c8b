#include "bindings/cli/launch/launch.h"

#include <sys/mman.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "bindings/cli/launch/job.h"
#include "bindings/cli/launch/process.h"
#include "bindings/cli/launch/signals.h"
#include "bindings/cli/launch/supervision.h"
#include "bindings/cli/processors.h"
#include "tutti/bootstrap.h"
#include "tutti/store.h"

namespace tutti {
namespace {

// A file without a name that holds the secret. StartRank lets the ranks inherit it.
class SecretFile {
 public:
  explicit SecretFile(const JobSecret& secret) : fd_(::memfd_create("tutti-job-secret", MFD_CLOEXEC)) {
    const std::string text = ToHex(secret);
    complete_ = fd_ >= 0 && ::write(fd_, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  }
  ~SecretFile() { ::close(fd_); }
  SecretFile(const SecretFile&) = delete;
  SecretFile& operator=(const SecretFile&) = delete;
  int fd() const { return fd_; }
  bool complete() const { return complete_; }

 private:
  const int fd_;
  bool complete_ = false;
};

// Runs the job; called in the process that supervises the ranks.
absl::StatusOr<int> RunJob(const LaunchOptions& options, const HandledSignals& signals, int front) {
  const JobSecret secret = RandomJobSecret();
  const SecretFile secret_file(secret);
  if (!secret_file.complete()) return Refused("cannot make the secret's file");
  const Identity identity{.size = options.ranks,
                          .job_id = absl::StrCat("launch ", ::getpid(), " ", ToHex(RandomJobSecret()).substr(0, 8))};
  absl::StatusOr<std::unique_ptr<TcpStoreServer>> server =
      TcpStoreServer::Start(StoreKey(identity, secret), {.one_table_per_program = true});
  if (!server.ok()) return server.status();

  absl::StatusOr<std::vector<cpu_set_t>> processors = std::vector<cpu_set_t>();
  if (options.bind) processors = cli::SharesOfProcessors(options.ranks);
  if (!processors.ok()) return processors.status();
  const ProcessTemplate common{.command = options.command,
                               .environment = RankEnvironment(options.ranks, identity.job_id, (*server)->address(),
                                                              secret_file.fd(), options.tells_threads),
                               .secret_fd = secret_file.fd(),
                               .signals = signals.before(),
                               .tag_output = options.tag_output,
                               .first_rank = options.first_rank,
                               .processors = *std::move(processors)};
  Job job(options, signals, front, **server);
  if (absl::Status status = job.Start(common); !status.ok()) return status;
  return job.Run();
}

}  // namespace

absl::StatusOr<int> Launch(const LaunchOptions& options) {
  if (options.ranks < 1) {
    return absl::InvalidArgumentError(absl::StrCat("tutti launch: ranks=", options.ranks, ", must be at least 1"));
  }
  if (options.first_rank < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("tutti launch: first_rank=", options.first_rank, ", must be at least 0"));
  }
  if (options.command.empty() || options.command[0].empty()) {
    return absl::InvalidArgumentError("tutti launch: no program given");
  }
  const HandledSignals signals;  // blocks signals before the store server's thread starts, which inherits the mask
  return RunSupervised(signals, [&](int front) { return RunJob(options, signals, front); });
}

}  // namespace tutti
