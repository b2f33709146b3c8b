// The identity of this process, from what launchers leave in the environment: a pure function of the environment, but
// for MPICH, which leaves no id of the job there: for ranks on one node the id is made from an ancestor process.
#ifndef TUTTI_COMM_BOOTSTRAP_IDENTITY_H_
#define TUTTI_COMM_BOOTSTRAP_IDENTITY_H_

#include "base/environment.h"
#include "tutti/bootstrap.h"

namespace tutti {

absl::StatusOr<Identity> IdentityFrom(const Environment& environment);
absl::Status CheckOtherLaunchers(const Environment& environment, Rank rank, int size);

// The first host of a Slurm node list: "n[003-7,9],m1" → "n003".
std::string FirstSlurmHost(absl::string_view node_list);

}  // namespace tutti

#endif  // TUTTI_COMM_BOOTSTRAP_IDENTITY_H_
