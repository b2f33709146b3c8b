#include "comm/bootstrap_identity.h"

#include <unistd.h>

#include <fstream>
#include <optional>
#include <sstream>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/config.h"

namespace tutti {
namespace {

const std::string* Find(const Environment& environment, absl::string_view name) {
  const auto found = environment.find(name);
  return found == environment.end() || found->second.empty() ? nullptr : &found->second;
}

std::string ValueOf(const Environment& environment, absl::string_view name) {
  const std::string* value = Find(environment, name);
  return value == nullptr ? "" : *value;
}

// The names of the four variables in which a launcher tells a process who it is.
struct Names {
  absl::string_view rank, size, local_rank, local_size;
};

absl::StatusOr<int> Number(const Environment& environment, absl::string_view name, absl::string_view because_of) {
  const std::string* text = Find(environment, name);
  if (text == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(because_of, " is set, but ", name, " is not"));
  }
  int value = 0;
  if (!absl::SimpleAtoi(*text, &value) || value < 0) {
    return absl::InvalidArgumentError(absl::StrCat(name, "=", *text, ": expected an integer that is not negative"));
  }
  return value;
}

absl::Status CheckPair(absl::string_view rank_name, int rank, absl::string_view size_name, int size) {
  if (size < 1) return absl::InvalidArgumentError(absl::StrCat(size_name, "=", size, ": expected at least 1"));
  if (rank < size) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(rank_name, "=", rank, " is not below ", size_name, "=", size));
}

// Reads the identity from the variables `names`. Without the variables of the local rank and the local size, all ranks
// are taken to be on this node, unless they meet in a place that ranks of other nodes can reach.
absl::StatusOr<Identity> Read(const Environment& environment, const Names& names, bool may_span_nodes = false) {
  Identity identity;
  absl::StatusOr<int> size = Number(environment, names.size, names.rank);
  if (!size.ok()) return size.status();
  absl::StatusOr<int> rank = Number(environment, names.rank, names.size);
  if (!rank.ok()) return rank.status();
  if (absl::Status status = CheckPair(names.rank, *rank, names.size, *size); !status.ok()) return status;
  identity.rank = identity.local_rank = *rank;
  identity.size = identity.local_size = *size;
  if (Find(environment, names.local_rank) == nullptr && Find(environment, names.local_size) == nullptr) {
    identity.assumes_own_node = may_span_nodes && *size > 1;
    identity.assumes_all_here = !may_span_nodes && *size > 1;
    if (identity.assumes_own_node) std::tie(identity.local_rank, identity.local_size) = std::pair(0, 1);
    return identity;
  }

  absl::StatusOr<int> local_rank = Number(environment, names.local_rank, names.local_size);
  if (!local_rank.ok()) return local_rank.status();
  absl::StatusOr<int> local_size = Number(environment, names.local_size, names.local_rank);
  if (!local_size.ok()) return local_size.status();
  if (absl::Status status = CheckPair(names.local_rank, *local_rank, names.local_size, *local_size); !status.ok()) {
    return status;
  }
  if (*local_size > *size) {
    return absl::InvalidArgumentError(
        absl::StrCat(names.local_size, "=", *local_size, " is more than ", names.size, "=", *size));
  }
  identity.local_rank = *local_rank;
  identity.local_size = *local_size;
  return identity;
}

absl::Status SetEpoch(const Environment& environment, absl::string_view name, Identity& identity) {
  if (Find(environment, name) == nullptr) return absl::OkStatus();
  absl::StatusOr<int> epoch = Number(environment, name, name);
  if (epoch.ok()) identity.epoch = *epoch;
  return epoch.status();
}

// Whether `host`, or the host of "host:port", is one that only this node can reach.
bool IsLoopback(absl::string_view host) {
  return host == "localhost" || absl::StartsWith(host, "localhost:") || absl::StartsWith(host, "127.") ||
         host == "::1" || absl::StartsWith(host, "[::1]");
}

// Whether Tutti's own variables name a place where ranks of other nodes can be met.
bool MeetsInReachOfOthers(const Environment& environment) {
  const std::string* const rendezvous = Find(environment, "TUTTI_RENDEZVOUS");
  return Find(environment, "TUTTI_STORE") != nullptr || (rendezvous != nullptr && !IsLoopback(*rendezvous));
}

absl::StatusOr<Identity> FromTutti(const Environment& environment) {
  absl::StatusOr<Identity> identity =
      Read(environment, {"TUTTI_RANK", "TUTTI_SIZE", "TUTTI_LOCAL_RANK", "TUTTI_LOCAL_SIZE"},
           MeetsInReachOfOthers(environment));
  if (!identity.ok()) return identity;
  identity->job_id = "tutti";
  if (absl::Status status = SetEpoch(environment, "TUTTI_EPOCH", *identity); !status.ok()) return status;
  return identity;
}

// Checks MASTER_PORT, which PyTorch's users know and set by hand too.
absl::Status CheckMasterPort(const Environment& environment) {
  const std::string* const text = Find(environment, "MASTER_PORT");
  constexpr int kLast = 65534;  // the store takes the next port
  int port = 0;
  if (text == nullptr || (absl::SimpleAtoi(*text, &port) && port >= 1 && port <= kLast)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("MASTER_PORT=", *text, ": expected a port from 1 to ", kLast));
}

// Operators of Kubernetes set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT alone, and so do people.
absl::StatusOr<Identity> FromTorchrun(const Environment& environment) {
  const std::string* const master = Find(environment, "MASTER_ADDR");
  const bool may_span_nodes = MeetsInReachOfOthers(environment) || (master != nullptr && !IsLoopback(*master));
  absl::StatusOr<Identity> identity =
      Read(environment, {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}, may_span_nodes);
  if (!identity.ok()) return identity;
  if (identity->size > 1) {
    if (absl::Status status = CheckMasterPort(environment); !status.ok()) return status;
  }
  // The run id alone is "none" for every job of a user who has given none. MASTER_ADDR is no part of the id: rank 0 may
  // know its own host by another name than other ranks do.
  identity->job_id =
      absl::StrCat("torchrun ", ValueOf(environment, "TORCHELASTIC_RUN_ID"), " ", ValueOf(environment, "MASTER_PORT"));
  if (absl::Status status = SetEpoch(environment, "TORCHELASTIC_RESTART_COUNT", *identity); !status.ok()) return status;
  // Each agent of torchrun counts its own restarts: an agent that has taken a lost one's place begins at 0.
  if (identity->local_size < identity->size) identity->epoch = 0;
  return identity;
}

absl::StatusOr<Identity> FromOpenMpi(const Environment& environment) {
  absl::StatusOr<Identity> identity = Read(environment, {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                                         "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"});
  if (!identity.ok()) return identity;
  // The job id of Open MPI is made of mpirun's process id, which a later job may have again; the precondition
  // transports (4.x) are random.
  identity->job_id =
      absl::StrCat("openmpi ", ValueOf(environment, "PMIX_NAMESPACE"), ValueOf(environment, "OMPI_MCA_ess_base_jobid"),
                   " ", ValueOf(environment, "OMPI_MCA_orte_precondition_transports"));
  return identity;
}

absl::StatusOr<Identity> FromPmix(const Environment& environment) {
  return absl::InvalidArgumentError(
      absl::StrCat("PMIX_RANK=", ValueOf(environment, "PMIX_RANK"),
                   " is set, but no variable tells the number of ranks; set TUTTI_RANK and TUTTI_SIZE"));
}

struct Process {
  std::string name;
  std::string start;  // the start of the process, in clock ticks after boot
  long parent = 0;
};

std::optional<Process> ReadProcess(long id) {
  std::ifstream file(absl::StrCat("/proc/", id, "/stat"));
  std::ostringstream text;
  text << file.rdbuf();  // reads nothing when the process has ended meanwhile
  const std::string line = text.str();
  const std::size_t open = line.find('('), close = line.rfind(')');
  if (open == line.npos || close == line.npos) return std::nullopt;
  // The fields after the process's name are state, parent, …; the start time is the 20th of them.
  const std::vector<std::string> fields =
      absl::StrSplit(absl::string_view(line).substr(close + 1), ' ', absl::SkipEmpty());
  Process process{line.substr(open + 1, close - open - 1), "", 0};
  if (fields.size() < 20 || !absl::SimpleAtoi(fields[1], &process.parent)) return std::nullopt;
  process.start = fields[19];
  return process;
}

// MPICH leaves no id of the job in the environment. The ranks of one node descend from one hydra_pmi_proxy, perhaps by
// way of a shell; where no ancestor is called hydra…, the ranks have one parent.
std::string HydraJobId() {
  const long parent = ::getppid();
  for (long id = parent; id > 1;) {
    const std::optional<Process> process = ReadProcess(id);
    if (!process) break;
    if (absl::StartsWith(process->name, "hydra")) return absl::StrCat(id, "@", process->start);
    id = process->parent;
  }
  const std::optional<Process> process = ReadProcess(parent);
  return absl::StrCat(parent, "@", process ? process->start : "");
}

absl::StatusOr<Identity> FromPmi(const Environment& environment) {
  absl::StatusOr<Identity> identity = Read(environment, {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"});
  if (!identity.ok()) return identity;
  identity->job_id = "pmi";
  if (identity->local_size == identity->size) absl::StrAppend(&identity->job_id, " ", HydraJobId());
  return identity;
}

// "2(x3),1": the tasks of each node of a step.
std::optional<int> TasksOnNode(absl::string_view tasks_per_node, int node) {
  for (absl::string_view part : absl::StrSplit(tasks_per_node, ',')) {
    const std::vector<std::string> pieces = absl::StrSplit(part, absl::ByAnyChar("(x)"), absl::SkipEmpty());
    int tasks = 0, nodes = 1;
    if (pieces.empty() || pieces.size() > 2 || !absl::SimpleAtoi(pieces[0], &tasks)) return std::nullopt;
    if (pieces.size() == 2 && !absl::SimpleAtoi(pieces[1], &nodes)) return std::nullopt;
    if (node < nodes) return tasks;
    node -= nodes;
  }
  return std::nullopt;
}

absl::StatusOr<Identity> FromSlurm(const Environment& environment) {
  const bool has_step_size = Find(environment, "SLURM_STEP_NUM_TASKS") != nullptr;
  absl::StatusOr<Identity> identity =
      Read(environment, {"SLURM_PROCID", has_step_size ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS", "", ""});
  if (!identity.ok()) return identity;
  identity->job_id =
      absl::StrCat("slurm ", ValueOf(environment, "SLURM_JOB_ID"), ".", ValueOf(environment, "SLURM_STEP_ID"));
  if (absl::Status status = SetEpoch(environment, "SLURM_RESTART_COUNT", *identity); !status.ok()) return status;

  absl::StatusOr<int> local_rank = Number(environment, "SLURM_LOCALID", "SLURM_PROCID");
  if (!local_rank.ok()) return local_rank.status();
  identity->local_rank = *local_rank;
  if (const std::string* tasks = Find(environment, "SLURM_STEP_TASKS_PER_NODE")) {
    absl::StatusOr<int> node = Number(environment, "SLURM_NODEID", "SLURM_PROCID");
    if (!node.ok()) return node.status();
    const std::optional<int> local_size = TasksOnNode(*tasks, *node);
    if (!local_size || *local_rank >= *local_size) {
      return absl::InvalidArgumentError(absl::StrCat("SLURM_STEP_TASKS_PER_NODE=", *tasks, " has no task ", *local_rank,
                                                     " (SLURM_LOCALID) on node ", *node, " (SLURM_NODEID)"));
    }
    identity->local_size = *local_size;
    identity->assumes_all_here = false;
  }
  return identity;
}

absl::StatusOr<Identity> FromHorovod(const Environment& environment) {
  absl::StatusOr<Identity> identity =
      Read(environment, {"HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE"});
  if (!identity.ok()) return identity;
  identity->job_id = absl::StrCat("horovod ", ValueOf(environment, "HOROVOD_GLOO_RENDEZVOUS_ADDR"), ":",
                                  ValueOf(environment, "HOROVOD_GLOO_RENDEZVOUS_PORT"));
  return identity;
}

struct Launcher {
  absl::string_view name;
  bool (*is_present)(const Environment& environment);
  absl::StatusOr<Identity> (*read)(const Environment& environment);
  absl::string_view rank_name, size_name;
};

// Whether this process runs in a Slurm step: a batch script, which runs in none, sees SLURM_PROCID=0 as well.
bool InSlurmStep(const Environment& environment) {
  return Find(environment, "SLURM_PROCID") != nullptr && Find(environment, "SLURM_STEP_ID") != nullptr;
}

// Whether a launcher of PMIx started this process. Open MPI 4 sets PMIX_RANK=0 by itself in a process that no launcher
// has started and that calls MPI_Init, as Lightning does by way of mpi4py to look for an MPI.
bool StartedByPmix(const Environment& environment) {
  const std::string* const rank = Find(environment, "PMIX_RANK");
  return rank != nullptr && !InSlurmStep(environment) &&
         (*rank != "0" || Find(environment, "PRTE_LAUNCHED") != nullptr);
}

// The launchers in the order in which they are asked: a launcher that runs inside another launcher's job comes first.
// srun sets PMIX_RANK or PMI_RANK too when srun serves an MPI; Slurm's own variables then tell more.
constexpr Launcher kLaunchers[] = {
    {"tutti", [](const Environment& e) { return Find(e, "TUTTI_RANK") || Find(e, "TUTTI_SIZE"); }, FromTutti,
     "TUTTI_RANK", "TUTTI_SIZE"},
    {"torchrun", [](const Environment& e) { return Find(e, "RANK") || Find(e, "WORLD_SIZE"); }, FromTorchrun, "RANK",
     "WORLD_SIZE"},
    {"openmpi", [](const Environment& e) { return Find(e, "OMPI_COMM_WORLD_RANK") != nullptr; }, FromOpenMpi,
     "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
    {"pmix", StartedByPmix, FromPmix, "PMIX_RANK", ""},
    {"pmi", [](const Environment& e) { return Find(e, "PMI_RANK") && (Find(e, "MPI_LOCALNRANKS") || !InSlurmStep(e)); },
     FromPmi, "PMI_RANK", "PMI_SIZE"},
    {"slurm", InSlurmStep, FromSlurm, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},
    {"horovod", [](const Environment& e) { return Find(e, "HOROVOD_RANK") != nullptr; }, FromHorovod, "HOROVOD_RANK",
     "HOROVOD_SIZE"},
};

// RANK and WORLD_SIZE without torchrun or Ray were set by hand, perhaps long ago in this shell. Where another
// launcher's variables contradict RANK and WORLD_SIZE, that launcher started this process for another world, and to
// believe either would be a guess. A Slurm step of one task is no such launcher: it holds the shell in which ranks are
// started by hand.
absl::Status CheckSetByHand(const Environment& environment, const Identity& identity, const Launcher& by_hand) {
  if (Find(environment, "TORCHELASTIC_RUN_ID") != nullptr || Find(environment, "RAY_JOB_ID") != nullptr) {
    return absl::OkStatus();
  }
  for (const Launcher& other : kLaunchers) {
    if (other.name == by_hand.name || !other.is_present(environment)) continue;
    if (other.name == "slurm" && ValueOf(environment, other.size_name) == "1") continue;
    for (const auto& [mine, value, name] : {std::tuple{by_hand.rank_name, identity.rank, other.rank_name},
                                            {by_hand.size_name, identity.size, other.size_name}}) {
      const std::string* theirs = Find(environment, name);
      int number = 0;
      if (theirs == nullptr || (absl::SimpleAtoi(*theirs, &number) && number == value)) continue;
      return absl::InvalidArgumentError(absl::StrCat(mine, "=", value, " and ", name, "=", *theirs, " disagree: unset ",
                                                     by_hand.rank_name, " and ", by_hand.size_name, " to go by ",
                                                     other.name, ", or set TUTTI_RANK and TUTTI_SIZE"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Identity> IdentityFrom(const Environment& environment) {
  absl::StatusOr<Config> config = ParseConfig(environment);
  if (!config.ok()) return config.status();
  absl::StatusOr<Identity> identity = Identity{.job_id = "single", .launcher = "single"};
  for (const Launcher& launcher : kLaunchers) {
    if (!launcher.is_present(environment)) continue;
    identity = launcher.read(environment);
    if (!identity.ok()) return identity;
    if (launcher.name == "torchrun") {
      if (absl::Status status = CheckSetByHand(environment, *identity, launcher); !status.ok()) return status;
    }
    identity->launcher = std::string(launcher.name);
    break;
  }
  if (!config->job_id.empty()) identity->job_id = config->job_id;
  return identity;
}

absl::Status CheckOtherLaunchers(const Environment& environment, Rank rank, int size) {
  const Identity identity = {.rank = rank, .size = size};
  for (const Launcher& launcher : kLaunchers) {
    if (launcher.name == "torchrun") return CheckSetByHand(environment, identity, launcher);
  }
  return absl::OkStatus();
}

absl::Status CheckOtherLaunchers(Rank rank, int size) { return CheckOtherLaunchers(ProcessEnvironment(), rank, size); }

absl::StatusOr<Identity> IdentityFromEnvironment() { return IdentityFrom(ProcessEnvironment()); }

std::string FirstSlurmHost(absl::string_view node_list) {
  std::string host;
  // A name may have several brackets, and text behind them: "rack[0-3]_blade[0-7]-ib".
  while (true) {
    const std::size_t end = node_list.find_first_of("[,");
    absl::StrAppend(&host, node_list.substr(0, end));
    if (end == node_list.npos || node_list[end] == ',') return host;
    const absl::string_view range = node_list.substr(end + 1);
    absl::StrAppend(&host, range.substr(0, range.find_first_of("-,]")));
    const std::size_t close = range.find(']');
    if (close == range.npos) return host;
    node_list = range.substr(close + 1);
  }
}

}  // namespace tutti
