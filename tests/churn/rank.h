// One rank of a round: joins, works with some threads until the round ends or a peer fails, and reports by lines.
//
//   working                         all ranks of the process have joined, and their threads begin
//   complaint TEXT                  something that must never happen
//   ended THREAD BEGUN NOW CODE TEXT    a thread met an error: when its wait began and ended, in nanoseconds of
//                                   CLOCK_MONOTONIC; thread -1: the rank could not join
//   idle                            no thread works any more; what their calls used is poisoned
//   where TEXT                      what the threads are doing; the answer to the line "where"
//
// After `idle` a rank of a round that does not end by itself waits for the line "go on".
#ifndef TUTTI_TESTS_CHURN_RANK_H_
#define TUTTI_TESTS_CHURN_RANK_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tests/churn/round.h"
#include "tests/harness/rank_processes.h"
#include "tutti/communicator.h"

namespace tutti::churn {

// Where the ranks of a job find each other.
struct Meeting {
  std::string directory;  // holds the rendezvous files
  std::string job;        // the name of the job, which no other job has
};

// What ranks that are threads of one process share.
struct Threads {
  std::shared_ptr<Store> store;
  std::shared_ptr<InprocHub> hub;
};

// Sets the environment variables of `rank`, from which Join reads who this process is. Called once per process.
void BecomeRank(const Round& round, Rank rank, const Meeting& meeting);
// Joins a new world, over inproc with the ranks of `threads` when `threads` is not null.
absl::StatusOr<std::unique_ptr<Communicator>> Join(const Round& round, Rank rank, const Threads* threads);

// Runs a process of a round from start to end and returns its exit code. With Path::kInproc the process has all ranks.
int RunRank(const Round& round, Rank rank, const Meeting& meeting, Lines& lines);
int RunRanksAsThreads(const Round& round, Lines& lines);

}  // namespace tutti::churn

#endif  // TUTTI_TESTS_CHURN_RANK_H_
