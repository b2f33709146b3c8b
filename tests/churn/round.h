// What happens in one round of the churn: a world is made, used at random, and perhaps one of its ranks fails.
#ifndef TUTTI_TESTS_CHURN_ROUND_H_
#define TUTTI_TESTS_CHURN_ROUND_H_

#include <array>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "tutti/dtype.h"

namespace tutti::churn {

// How bytes move between the ranks.
enum class Path : std::uint8_t {
  kMapped,        // processes that map each other's memory
  kSharedMemory,  // processes that send messages, over UCX's shared memory
  kTcp,           // processes that act as nodes of their own and send messages over loopback
  kInproc,        // threads of one process
};
inline constexpr std::array<Path, 4> kAllPaths = {Path::kMapped, Path::kSharedMemory, Path::kTcp, Path::kInproc};
absl::string_view Name(Path path);
absl::StatusOr<Path> ParsePath(absl::string_view name);

// What happens to one rank, the victim.
enum class Fault : std::uint8_t {
  kNone,
  kPause,     // the victim is stopped, and continued long before the timeout: nobody may notice
  kKill,      // the victim is killed while it works
  kKillJoin,  // the victim is killed while it joins the world
  kStop,      // the victim is stopped for longer than the timeout, and continued when its peers have given it up
  kLeave,     // the victim returns earlier than its peers
  kAbort,     // the victim calls Abort
};
inline constexpr std::array<Fault, 7> kAllFaults = {Fault::kNone, Fault::kPause, Fault::kKill, Fault::kKillJoin,
                                                    Fault::kStop, Fault::kLeave, Fault::kAbort};
absl::string_view Name(Fault fault);
absl::StatusOr<Fault> ParseFault(absl::string_view name);

struct Round {
  std::uint64_t seed = 1;
  int number = 0;
  Path path = Path::kMapped;
  int ranks = 2;
  int threads = 1;  // threads of each rank, each with a communicator of its own
  Fault fault = Fault::kNone;
  Rank victim = 0;
  // The time from the moment that all ranks work (with kKillJoin: that they join) to the fault.
  absl::Duration fault_after = absl::ZeroDuration();
  absl::Duration pause = absl::ZeroDuration();
  absl::Duration timeout = absl::Seconds(5);
  // The activities (Worker::DoNext) of each thread. Ranks whose peer fails go on until they hear of the failure.
  int activities = 10;
  // Survivors destroy their communicators as soon as they know, and do not wait until all know.
  bool survivors_leave_at_once = false;
  int worlds = 1;  // worlds made one after the other by the same processes
  // The largest call, in elements.
  int largest_count = 1 << 20;

  bool ends_by_itself() const { return fault == Fault::kNone || fault == Fault::kPause; }
};

// What the user of the churn fixes on the command line; the rest is drawn at random.
struct Fixed {
  std::uint64_t seed = 1;
  Path path = Path::kMapped;
  int ranks = 0;           // 0: 2 to 5 ranks
  std::string fault = "";  // empty: any fault
};

// Round `number`, drawn at random within what `fixed` leaves open; equal arguments give the same round.
Round RoundOf(const Fixed& fixed, int number);
// The round as one line of text, for reports.
std::string Describe(const Round& round);

}  // namespace tutti::churn

#endif  // TUTTI_TESTS_CHURN_ROUND_H_
