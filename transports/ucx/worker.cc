#include "transports/ucx/worker.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/descriptors.h"
#include "transports/ucx/descriptors.h"

namespace tutti::ucx {
namespace {

struct Setting {
  const char* name;
  const char* value;
};

// The bytes of /dev/shm that UCX takes for one rank, with the buffers that library.cc asks for. While many messages
// wait for their receives, UCX takes twice as many.
constexpr std::int64_t kSharedMemoryBytes = 2304 << 10;

// The error of a call of UCX that failed while this rank set itself up.
absl::Status SetupFailed(const Library& ucp, absl::string_view call, ucs_status_t status) {
  return absl::InternalError(absl::StrCat("UCX: ", call, ": ", ucp.ucs_status_string(status)));
}

// The error of a worker that UCX could not make. Where /dev/shm is too full for the messages, or read-only, UCX itself
// says only "no resources" or "shared memory error".
absl::Status WorkerFailed(const Library& ucp, ucs_status_t status) {
  if (access("/dev/shm", W_OK) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("/dev/shm cannot be written (", std::strerror(errno),
                     "); messages within a node travel through it: mount it writable (mount -o remount,rw /dev/shm)"));
  }
  struct statvfs space = {};
  if (statvfs("/dev/shm", &space) == 0) {
    const auto free = static_cast<std::int64_t>(space.f_bavail * space.f_frsize);
    if (free < kSharedMemoryBytes) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "/dev/shm has ", free >> 10, " KiB free; each rank of a node needs ", kSharedMemoryBytes >> 10,
          " KiB there for its messages: make it larger (mount -o remount,size=…; docker run --shm-size=…)"));
    }
  }
  return SetupFailed(ucp, "ucp_worker_create", status);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Worker>> Worker::Create() {
  const absl::StatusOr<Library>& library = LoadLibrary();
  if (!library.ok()) return library.status();
  const std::vector<int> before = OpenDescriptors();
  std::unique_ptr<Worker> worker(new Worker(*library));
  if (absl::Status status = worker->Open(); !status.ok()) return status;
  CloseOnExecSince(before);
  return worker;
}

absl::Status Worker::Open() {
  ucp_config_t* config = nullptr;
  ucs_status_t status = ucp_.ucp_config_read(nullptr, nullptr, &config);
  if (status != UCS_OK) return SetupFailed(ucp_, "ucp_config_read", status);
  const Setting settings[] = {
      // Without System V, UCX 1.13 sends keepalives through a connection that is not there yet, and crashes.
      {"TLS", "self,posix,sysv"},
      {"KEEPALIVE_INTERVAL", "1s"},
  };
  for (const Setting& setting : settings) {
    status = ucp_.ucp_config_modify(config, setting.name, setting.value);
    if (status == UCS_OK) continue;
    ucp_.ucp_config_release(config);
    return SetupFailed(ucp_, absl::StrCat("ucp_config_modify(", setting.name, ")"), status);
  }
  ucp_params_t params = {};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP;
  status = ucp_.ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &context_);
  ucp_.ucp_config_release(config);
  if (status != UCS_OK) return SetupFailed(ucp_, "ucp_init", status);

  ucp_worker_params_t worker_params = {};
  worker_params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  worker_params.thread_mode = UCS_THREAD_MODE_SERIALIZED;  // the driver may move between threads
  status = ucp_.ucp_worker_create(context_, &worker_params, &worker_);
  if (status != UCS_OK) return WorkerFailed(ucp_, status);
  status = ucp_.ucp_worker_get_efd(worker_, &event_fd_);
  if (status != UCS_OK) return SetupFailed(ucp_, "ucp_worker_get_efd", status);
  return absl::OkStatus();
}

Worker::~Worker() {
  if (in_forked_child()) return;
  if (worker_ != nullptr) ucp_.ucp_worker_destroy(worker_);
  if (context_ != nullptr) ucp_.ucp_cleanup(context_);
}

absl::StatusOr<std::string> Worker::Address() const {
  ucp_worker_attr_t attributes = {};
  attributes.field_mask = UCP_WORKER_ATTR_FIELD_ADDRESS;
  const ucs_status_t status = ucp_.ucp_worker_query(worker_, &attributes);
  if (status != UCS_OK) return SetupFailed(ucp_, "ucp_worker_query", status);
  std::string address(reinterpret_cast<const char*>(attributes.address), attributes.address_length);
  ucp_.ucp_worker_release_address(worker_, attributes.address);
  return address;
}

}  // namespace tutti::ucx
