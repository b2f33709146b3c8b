// A world with faults, and checks that every rank ends in time, with right results or with an error of the right code
// that names the right rank.
#ifndef TUTTI_TESTS_FAULTS_FAULTY_WORLD_H_
#define TUTTI_TESTS_FAULTS_FAULTY_WORLD_H_

#include <functional>
#include <string>
#include <vector>

#include "tests/harness/world.h"
#include "tutti/faulty_transport.h"

namespace tutti {

// How one rank ended.
struct Outcome {
  absl::Status status;
  std::string wrong;  // the first result that is not what it should be although its status was OK; "": none
};

// A timeout by which nothing ends but by a mistake.
inline constexpr absl::Duration kLongTimeout = absl::Seconds(60);

// A timeout for worlds that lose messages. On a busy machine RunWithFaults takes a longer one.
inline constexpr absl::Duration kShortTimeout = absl::Milliseconds(200);

struct FaultyWorld {
  int size = 3;
  std::string transport = "inproc";
  FaultPlan plan;
  absl::Duration timeout = kLongTimeout;  // a test of calls that end by their timeout sets a shorter one
  int ranks_per_node = 0;
};

struct Endings {
  std::vector<Outcome> ranks;
  std::vector<FaultEvent> events;
  absl::Duration took;
};

// Runs `body` on every rank of a world that does everything by messages. A rank that cannot join ends with that error.
// Where no fault explains that a timeout shorter than kLongTimeout has passed, the machine was too slow, and the world
// is run again with twice the time, up to 16 times the first one.
Endings RunWithFaults(const FaultyWorld& world, const std::function<Outcome(Communicator&)>& body);

// Whether `status` is DeadlineExceeded of a wait at the store that lists `rank` among those that did not come. A rank
// that has heard of a death leaves at once, so it can be on that list too.
bool ListsAsMissing(Rank rank, const absl::Status& status);

// Checks of what each kind of faults promises; a failure is explained with the faults that happened.
void ExpectNoHarm(const Endings& endings);
// kKill: long before the timeout every rank ends well (the victim, too, if its calls had ended before the kill) or says
// that `victim` died.
void ExpectDeathOf(Rank victim, const Endings& endings);
// kDrop, kHalfOpen: the rank to which a message was lost does not end well; who does not end well has waited for
// another rank for the whole timeout, or says that another rank has left, or that a message has another length than its
// receive: the one that follows the lost one, of send and recv with one tag.
void ExpectLoss(const FaultyWorld& world, const Endings& endings);
// kTruncate: all who do not end well have the one error that names the sender and both lengths.
void ExpectTruncation(const Endings& endings);

}  // namespace tutti

#endif  // TUTTI_TESTS_FAULTS_FAULTY_WORLD_H_
