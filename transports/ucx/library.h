// libucp, loaded when the first UCX transport is made and not before: libucp installs memory hooks and signal handlers
// as it loads, into every process that links libucp, and only variables that are set earlier turn them off. Programs
// that never use UCX do not need libucp.
#ifndef TUTTI_TRANSPORTS_UCX_LIBRARY_H_
#define TUTTI_TRANSPORTS_UCX_LIBRARY_H_

#include <ucp/api/ucp.h>

#include <string>

#include "absl/status/statusor.h"

// The functions of libucp that Tutti calls: only such as exist from UCX 1.13 to 1.22.
#define TUTTI_UCP_FUNCTIONS(F)  \
  F(ucp_cleanup)                \
  F(ucp_config_modify)          \
  F(ucp_config_read)            \
  F(ucp_config_release)         \
  F(ucp_ep_close_nbx)           \
  F(ucp_ep_create)              \
  F(ucp_get_version_string)     \
  F(ucp_init_version)           \
  F(ucp_request_cancel)         \
  F(ucp_request_check_status)   \
  F(ucp_request_free)           \
  F(ucp_tag_msg_recv_nbx)       \
  F(ucp_tag_probe_nb)           \
  F(ucp_tag_recv_nbx)           \
  F(ucp_tag_send_nbx)           \
  F(ucp_tag_send_sync_nbx)      \
  F(ucp_worker_arm)             \
  F(ucp_worker_create)          \
  F(ucp_worker_destroy)         \
  F(ucp_worker_flush_nbx)       \
  F(ucp_worker_get_efd)         \
  F(ucp_worker_progress)        \
  F(ucp_worker_query)           \
  F(ucp_worker_release_address) \
  F(ucs_status_string)

namespace tutti::ucx {

struct Library {
// A name cannot stand in parentheses where it is declared. NOLINTNEXTLINE(bugprone-macro-parentheses)
#define TUTTI_UCP_MEMBER(function) decltype(&::function) function = nullptr;
  TUTTI_UCP_FUNCTIONS(TUTTI_UCP_MEMBER)
#undef TUTTI_UCP_MEMBER

  std::string path;  // the file of libucp
};

// The library, loaded at the first call and never unloaded. A libucp that the process has loaded already is taken, and
// where there is only a libucs (which an MPI leaves behind), the libucp that lies beside that libucs: one process can
// have the libraries of one UCX only. NotFound says what could not be loaded. Thread-safe, except that the first call
// sets UCX_* variables that are not set: no other thread may read the environment meanwhile.
const absl::StatusOr<Library>& LoadLibrary();

}  // namespace tutti::ucx

#endif  // TUTTI_TRANSPORTS_UCX_LIBRARY_H_
