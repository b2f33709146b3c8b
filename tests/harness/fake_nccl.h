// NCCL over host memory, for tests of code above it: the same table (transports/nccl/library.h), with communicators
// between threads of this process, on streams of the fake CUDA. A blocking communicator waits in its calls: in the
// first call of a kind for the same call of its peers, and when it is made, split, shrunk and finalized; comm_abort by
// another thread ends such a wait with an error. The fake is as strict as NCCL is with non-blocking communicators:
// every call but get_async_error and comm_abort is refused while something is under way, and a group is put on its
// stream by the next get_async_error.
#ifndef TUTTI_TESTS_HARNESS_FAKE_NCCL_H_
#define TUTTI_TESTS_HARNESS_FAKE_NCCL_H_

#include "absl/time/time.h"
#include "tests/harness/fake_clique.h"
#include "transports/nccl/library.h"

namespace tutti {

class FakeNccl {
 public:
  // NCCL 2.28.9, with all features.
  static const nccl::Library& Table();
  // The functions that NCCL of `version` has: what came later is null.
  static nccl::Library TableOf(int version);

  // The rank's launch goes wrong as `fault` says, in the communicator of this id; to be called before its rank joins.
  static void Inject(const nccl::UniqueId& id, const FakeFault& fault);

  // Settings of the whole process, which a destructor sets back.
  struct Settings {
    // How long a launch, or a first call, waits for its peers before that counts as a deadlock and is an error of the
    // communicator.
    absl::Duration patience = absl::Seconds(30);
    // comm_abort does not return while this is true.
    bool aborts_hang = false;
    // The end of a communicator is a remote error of the peers whose launches wait for it, as over NCCL's sockets; they
    // hear nothing of it otherwise, as over memory that they share.
    bool peers_notice_ends = false;
  };
  class With {
   public:
    explicit With(const Settings& settings);
    ~With();
    With(const With&) = delete;
    With& operator=(const With&) = delete;
  };

  // Communicators that have been neither destroyed nor aborted.
  static int LivingCommunicators();
  // Groups of calls that were made with non-blocking communicators, for each of which NCCL starts a thread.
  static int NonBlockingGroups();
  // Communicators that were freed, or used, while another thread was in one of their calls.
  static int Misuses();
  // Registrations and operators of destroyed communicators that had not been given up before.
  static int LeftBehind();
};

}  // namespace tutti

#endif  // TUTTI_TESTS_HARNESS_FAKE_NCCL_H_
