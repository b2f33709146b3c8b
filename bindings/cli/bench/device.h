// The GPUs of a benchmark: which rank uses which, and why it may not.
#ifndef TUTTI_BINDINGS_CLI_BENCH_DEVICE_H_
#define TUTTI_BINDINGS_CLI_BENCH_DEVICE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tutti/bootstrap.h"
#include "tutti/communicator.h"

namespace tutti::cli {

// The GPU of a rank, as nccl-tests chooses it: its place on its node, modulo the number of GPUs that it sees.
int DeviceOf(int local_rank, int devices);

// Checks that `ranks` ranks of this node may use its GPUs; returns the number of GPUs. InvalidArgument says why there
// is none, in the words of `tutti info`, or that the ranks outnumber the GPUs: NCCL refuses a GPU with two ranks.
absl::StatusOr<int> CheckDevices(int ranks);
// CheckDevices for a process that is to start the ranks: a child process asks, and alone starts CUDA's driver.
absl::Status CheckDevicesOfRanksToStart(int ranks);

// `error`, which a rank met when it joined the others; where the ranks of its node outnumber the GPUs that it sees,
// with the way in which NCCL lets them share.
absl::Status WithHintOnSharing(const absl::Status& error, const Identity& identity, int devices);

// A line on the GPU of each rank; all ranks call DescribeDevicesOf.
absl::StatusOr<std::vector<std::string>> DescribeDevicesOf(Communicator& communicator);

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_BENCH_DEVICE_H_
