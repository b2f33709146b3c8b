#include "transports/ucx/worker.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "transports/ucx/status.h"

namespace tutti::ucx {
namespace {

struct Setting {
  const char* name;
  const char* value;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Worker>> Worker::Create(const std::string& device) {
  const absl::StatusOr<Library>& library = LoadLibrary();
  if (!library.ok()) return library.status();
  std::unique_ptr<Worker> worker(new Worker(*library));
  if (absl::Status status = worker->Open(device); !status.ok()) return status;
  return worker;
}

absl::Status Worker::Open(const std::string& device) {
  ucp_config_t* config = nullptr;
  ucs_status_t status = ucp_.ucp_config_read(nullptr, nullptr, &config);
  if (status != UCS_OK) return SetupFailed(ucp_, "ucp_config_read", status);
  const Setting settings[] = {
      {"TLS", "self,posix,sysv,tcp"},
      {"NET_DEVICES", device.c_str()},
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
  if (status != UCS_OK) return SetupFailed(ucp_, absl::StrCat("ucp_init for device '", device, "'"), status);

  ucp_worker_params_t worker_params = {};
  worker_params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  worker_params.thread_mode = UCS_THREAD_MODE_SERIALIZED;  // the driver may move between threads
  status = ucp_.ucp_worker_create(context_, &worker_params, &worker_);
  if (status != UCS_OK) return SetupFailed(ucp_, "ucp_worker_create", status);
  status = ucp_.ucp_worker_get_efd(worker_, &event_fd_);
  if (status != UCS_OK) return SetupFailed(ucp_, "ucp_worker_get_efd", status);
  return absl::OkStatus();
}

Worker::~Worker() {
  if (worker_ != nullptr) ucp_.ucp_worker_destroy(worker_);
  if (context_ != nullptr) ucp_.ucp_cleanup(context_);
}

absl::StatusOr<std::string> Worker::Address(bool network_only) const {
  ucp_worker_attr_t attributes = {};
  attributes.field_mask = UCP_WORKER_ATTR_FIELD_ADDRESS | UCP_WORKER_ATTR_FIELD_ADDRESS_FLAGS;
  attributes.address_flags = network_only ? UCP_WORKER_ADDRESS_FLAG_NET_ONLY : 0;
  const ucs_status_t status = ucp_.ucp_worker_query(worker_, &attributes);
  if (status != UCS_OK) return SetupFailed(ucp_, "ucp_worker_query", status);
  std::string address(reinterpret_cast<const char*>(attributes.address), attributes.address_length);
  ucp_.ucp_worker_release_address(worker_, attributes.address);
  return address;
}

}  // namespace tutti::ucx
