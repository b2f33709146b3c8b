#include "tests/harness/process_world.h"

#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "tutti/bootstrap.h"
#include "tutti/store.h"
#include "tutti/transport.h"

namespace tutti {
namespace {

absl::Status RunRank(Rank rank, int size, const std::string& directory, const CommunicatorOptions& options,
                     const ProcessWorld::Body& body, const ProcessWorld::Report& report) {
  absl::StatusOr<std::shared_ptr<Store>> store = MakeFileStore(directory);
  if (!store.ok()) return store.status();
  absl::StatusOr<std::unique_ptr<Transport>> transport = MakeUcxTransport({}, {.region_bytes = std::int64_t{1} << 30});
  if (!transport.ok()) return transport.status();
  Bootstrap bootstrap;
  bootstrap.identity.rank = bootstrap.identity.local_rank = rank;
  bootstrap.identity.size = bootstrap.identity.local_size = size;
  bootstrap.store = *store;
  absl::StatusOr<std::unique_ptr<Communicator>> communicator =
      Communicator::Create(bootstrap, *std::move(transport), options);
  if (!communicator.ok()) return communicator.status();
  body(**communicator, report);
  return absl::OkStatus();
}

}  // namespace

ProcessWorld::ProcessWorld(int size, const CommunicatorOptions& options, const Body& body) {
  std::string pattern = (std::filesystem::temp_directory_path() / "tutti_process_world_XXXXXX").string();
  directory_ = mkdtemp(pattern.data());
  for (Rank rank = 0; rank < size; ++rank) {
    int ends[2];
    if (pipe(ends) != 0) abort();
    const pid_t pid = fork();
    if (pid == 0) {
      close(ends[0]);
      const auto report = [fd = ends[1]](const std::string& line) {
        const std::string text = line + "\n";
        if (write(fd, text.data(), text.size()) < 0) _exit(1);
      };
      const absl::Status status = RunRank(rank, size, directory_, options, body, report);
      if (!status.ok()) report(status.ToString());
      _exit(status.ok() ? 0 : 1);
    }
    close(ends[1]);
    processes_.push_back({pid, UniqueFd(ends[0]), ""});
  }
}

ProcessWorld::~ProcessWorld() {
  for (const Process& process : processes_) kill(process.pid, SIGKILL);
  for (const Process& process : processes_) waitpid(process.pid, nullptr, 0);
  std::filesystem::remove_all(directory_);
}

void ProcessWorld::Signal(Rank rank, int signal) { kill(processes_[rank].pid, signal); }

std::string ProcessWorld::NextLine(Rank rank) {
  Process& process = processes_[rank];
  while (process.unread.find('\n') == std::string::npos) {
    pollfd readable{.fd = process.lines.get(), .events = POLLIN, .revents = 0};
    char bytes[512];
    if (poll(&readable, 1, 60'000) <= 0) return "";
    const ssize_t got = read(process.lines.get(), bytes, sizeof(bytes));
    if (got <= 0) return "";
    process.unread.append(bytes, static_cast<std::size_t>(got));
  }
  const std::size_t end = process.unread.find('\n');
  std::string line = process.unread.substr(0, end);
  process.unread.erase(0, end + 1);
  return line;
}

}  // namespace tutti
