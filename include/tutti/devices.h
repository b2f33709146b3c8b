// The GPUs of this machine and the NCCL of this process, or why there are none, as `tutti info` prints them; and copies
// between the memory of GPUs and that of the host.
#ifndef TUTTI_DEVICES_H_
#define TUTTI_DEVICES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tutti {

struct DeviceSummary {
  std::string name;                // "NVIDIA H100 80GB HBM3"
  std::int64_t memory_bytes = 0;   // all of it, used or not
  std::string compute_capability;  // "9.0"
};

struct CudaSummary {
  std::string runtime;  // the CUDA that Tutti was built with: "13.0"
  std::string driver;   // the newest CUDA that the driver serves
  std::vector<DeviceSummary> devices;
};

// Unimplemented when Tutti was built without CUDA, NotFound when there is no driver or no device, Internal for other
// errors. Starts CUDA's driver in this process, which a later fork leaves unusable in the child.
absl::StatusOr<CudaSummary> DescribeCuda();

// How many GPUs communicators of this process can use, at least 1: CommunicatorOptions::cuda_device is one of 0, 1, ….
// Otherwise the reason why there is none: the error of DescribeCuda or of DescribeNccl. Takes no memory of a GPU.
absl::StatusOr<int> UsableDevices();
// Describes GPU `device` of 0 … UsableDevices() - 1, and takes memory of that GPU alone. InvalidArgument for another
// number.
absl::StatusOr<DeviceSummary> DescribeDevice(int device);

struct NcclSummary {
  std::string version;                // "2.28.9"
  std::string path;                   // of the library
  std::vector<std::string> features;  // of those that versions of NCCL may lack: "shrink", "register", …
  std::vector<std::string> missing;
};

// Loads NCCL. NotFound when there is none, FailedPrecondition when it is too old.
absl::StatusOr<NcclSummary> DescribeNccl();

// Copies between any two of memory of the host and of GPUs, and waits for the end of the copy, which begins after what
// is on the default stream of the GPU that has the memory. Errors are those of DescribeCuda.
absl::Status CopyMemory(void* to, const void* from, std::int64_t bytes);

}  // namespace tutti

#endif  // TUTTI_DEVICES_H_
