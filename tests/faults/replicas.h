// The number of the first message of training, for faults that are to strike training and not the making of replicas.
#ifndef TUTTI_TESTS_FAULTS_REPLICAS_H_
#define TUTTI_TESTS_FAULTS_REPLICAS_H_

#include <algorithm>

#include "tests/faults/faulty_world.h"
#include "tests/harness/training.h"

namespace tutti {

// How many messages a rank sends to another one before the first step, at most.
inline std::int64_t MessagesUntilMade(const Training& training) {
  // A fault for every message, which delays it by next to nothing: each message is then an event.
  const FaultyWorld world = {.size = training.size(),
                             .plan = {.faults = {{.kind = FaultKind::kSlow, .delay = absl::Nanoseconds(1)}}}};
  const Endings endings = RunWithFaults(world, [&](Communicator& comm) -> Outcome {
    return {Replica::Create(comm, training.model, training.strategy, training.initial).status(), ""};
  });
  std::int64_t messages = 0;
  for (const FaultEvent& event : endings.events) messages = std::max(messages, event.number + 1);
  return messages;
}

}  // namespace tutti

#endif  // TUTTI_TESTS_FAULTS_REPLICAS_H_
