#include "bindings/cli/bench/device.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/host_name.h"
#include "tutti/devices.h"

namespace tutti::cli {
namespace {

std::string HowToShare(int ranks) {
  return absl::StrCat(
      "NCCL takes two ranks on one GPU only from processes with different NCCL_HOSTID, which then count as nodes of "
      "their own: tutti launch -n ",
      ranks, " -- sh -c 'TUTTI_GPU_TRANSPORT=nccl NCCL_HOSTID=$TUTTI_RANK tutti bench all_reduce --device cuda'");
}

absl::Status OfFlag(absl::string_view message) {
  return absl::InvalidArgumentError(absl::StrCat("--device cuda: ", message));
}

}  // namespace

int DeviceOf(int local_rank, int devices) { return local_rank % devices; }

absl::StatusOr<int> CheckDevices(int ranks) {
  absl::StatusOr<int> devices = UsableDevices();
  if (!devices.ok()) return OfFlag(devices.status().message());
  if (ranks <= *devices) return devices;
  return OfFlag(absl::StrCat(ranks, " ranks, and ", *devices, *devices == 1 ? " GPU: " : " GPUs: ", HowToShare(ranks)));
}

absl::Status CheckDevicesOfRanksToStart(int ranks) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return absl::InternalError(absl::StrCat("pipe: ", std::strerror(errno)));
  const pid_t child = fork();
  if (child < 0) {
    const std::string why = std::strerror(errno);
    ::close(ends[0]);
    ::close(ends[1]);
    return absl::ResourceExhaustedError(absl::StrCat("cannot start a process: ", why));
  }
  if (child == 0) {
    const absl::Status status = CheckDevices(ranks).status();
    const std::string text(status.message());
    const ssize_t written = ::write(ends[1], text.data(), text.size());
    _exit(written == static_cast<ssize_t>(text.size()) ? 0 : 1);
  }
  ::close(ends[1]);
  std::string text;
  char part[4096];
  ssize_t got = 0;
  while ((got = ::read(ends[0], part, sizeof part)) > 0 || (got < 0 && errno == EINTR)) {
    if (got > 0) text.append(part, static_cast<std::size_t>(got));
  }
  ::close(ends[0]);
  int ended = 0;
  while (waitpid(child, &ended, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(ended) || WEXITSTATUS(ended) != 0) return OfFlag("the process that was to look for GPUs has crashed");
  return text.empty() ? absl::OkStatus() : absl::InvalidArgumentError(text);
}

absl::Status WithHintOnSharing(const absl::Status& error, const Identity& identity, int devices) {
  if (identity.local_size <= devices) return error;
  return absl::Status(error.code(), absl::StrCat(error.message(), "; ", identity.local_size, " ranks of this node see ",
                                                 devices, devices == 1 ? " GPU" : " GPUs", ": if they are the same, ",
                                                 HowToShare(identity.size)));
}

absl::StatusOr<std::vector<std::string>> DescribeDevicesOf(Communicator& communicator) {
  const int device = communicator.cuda_device().value_or(-1);
  const absl::StatusOr<DeviceSummary> summary = DescribeDevice(device);
  if (!summary.ok()) return summary.status();
  const absl::StatusOr<int> devices = UsableDevices();
  if (!devices.ok()) return devices.status();
  return ExchangeBlobs(communicator.store(), "bench_devices", communicator.rank(), communicator.size(),
                       absl::StrCat("rank ", communicator.rank(), " on ", HostName(), ": GPU ", device, " of ",
                                    *devices, ", ", summary->name),
                       absl::Now() + communicator.timeout());
}

}  // namespace tutti::cli
