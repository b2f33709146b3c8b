// Who am I: what the launchers leave in the environment. A pure function of it, but for a last resort under MPICH.
#ifndef TUTTI_COMM_BOOTSTRAP_IDENTITY_H_
#define TUTTI_COMM_BOOTSTRAP_IDENTITY_H_

#include "base/environment.h"
#include "tutti/bootstrap.h"

namespace tutti {

absl::StatusOr<Identity> IdentityFrom(const Environment& environment);

// The first host of a Slurm node list: "n[003-7,9],m1" → "n003".
std::string FirstSlurmHost(absl::string_view node_list);

}  // namespace tutti

#endif  // TUTTI_COMM_BOOTSTRAP_IDENTITY_H_
