#include "tests/harness/fake_nccl.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/harness/fake_cuda.h"

namespace tutti {
namespace {

using nccl::Comm;
using nccl::DataType;
using nccl::RedOp;
using nccl::Result;
using nccl::UniqueId;

// A communicator of one rank. One thread at a time uses it, as NCCL demands (but for comm_get_async_error and
// comm_abort), and streams use its clique.
struct Member {
  std::shared_ptr<FakeClique> clique;
  int rank = 0;
  int device = 0;
  bool is_blocking = false;
  std::atomic<int> threads = 0;  // in calls that may wait

  std::function<Result()> launch;         // a group of a non-blocking communicator that is not on its stream yet
  std::function<bool()> end_of_division;  // of a split or shrink that is under way: true once it has ended
  std::int64_t splits = 0;
  bool is_finalized = false;
  std::map<RedOp, double> factors;
  int operators = 0;
  int registrations = 0;

  int belongings() const { return registrations + static_cast<int>(factors.size()); }
};

// A call in an open group of this thread.
struct Grouped {
  std::shared_ptr<Member> member;
  CUstream_st* stream = nullptr;
  FakeCall call;
};
thread_local int group_depth = 0;
thread_local std::vector<Grouped> group;
thread_local Result group_error = Result::kSuccess;  // the first of its calls
thread_local std::vector<Comm> group_aborts;         // communicators that are freed at the end of the group

struct State {
  Mutex mutex;
  Condition changed;
  std::map<std::string, std::shared_ptr<FakeClique>> cliques TUTTI_GUARDED_BY(mutex);
  std::map<std::string, std::vector<FakeFault>> faults TUTTI_GUARDED_BY(mutex);
  std::map<Comm, std::shared_ptr<Member>> members TUTTI_GUARDED_BY(mutex);
  FakeNccl::Settings settings TUTTI_GUARDED_BY(mutex);
  std::int64_t ids TUTTI_GUARDED_BY(mutex) = 0;
  int left_behind TUTTI_GUARDED_BY(mutex) = 0;
  int non_blocking_groups TUTTI_GUARDED_BY(mutex) = 0;
  int misuses TUTTI_GUARDED_BY(mutex) = 0;
};

// Never destroyed: threads of streams may outlive main.
State& TheState() {
  static State& state = *new State;
  return state;
}

std::string KeyOf(const UniqueId& id) { return std::string(id.bytes, sizeof(id.bytes)); }

std::shared_ptr<Member> Find(Comm comm) {
  State& state = TheState();
  MutexLock lock(state.mutex);
  const auto found = state.members.find(comm);
  return found == state.members.end() ? nullptr : found->second;
}

Comm Add(std::shared_ptr<Member> member) {
  const Comm comm = reinterpret_cast<Comm>(member.get());
  State& state = TheState();
  MutexLock lock(state.mutex);
  state.members[comm] = std::move(member);
  return comm;
}

FakeNccl::Settings Current() {
  State& state = TheState();
  MutexLock lock(state.mutex);
  return state.settings;
}

void CountMisuse() {
  State& state = TheState();
  MutexLock lock(state.mutex);
  ++state.misuses;
}

// A call that may wait.
class InCall {
 public:
  explicit InCall(Member& member) : member_(member) {
    if (member_.threads++ > 0) CountMisuse();
  }
  ~InCall() { --member_.threads; }
  InCall(const InCall&) = delete;
  InCall& operator=(const InCall&) = delete;

  // Waits until `is_over`. kInternalError when the communicator is aborted before.
  template <typename IsOver>
  Result Await(IsOver is_over) {
    while (!is_over()) {
      if (member_.clique->is_aborted(member_.rank)) return Result::kInternalError;
      std::this_thread::yield();
    }
    return Result::kSuccess;
  }

 private:
  Member& member_;
};

// The state of a communicator, after what can be ended has been.
Result Poll(Member& member) {
  if (member.launch) {
    const Result launched = std::exchange(member.launch, nullptr)();
    if (launched != Result::kSuccess) member.clique->SetError(member.rank, launched, "a launch failed");
  }
  if (member.end_of_division && member.end_of_division()) member.end_of_division = nullptr;
  const Result state = member.clique->state(member.rank);
  if (state != Result::kSuccess) return state;
  const bool finalizes = member.is_finalized && member.clique->is_busy(member.rank);
  return member.launch || member.end_of_division || finalizes ? Result::kInProgress : Result::kSuccess;
}

Result GetAsyncError(Comm comm, Result* error) {
  const std::shared_ptr<Member> member = Find(comm);
  if (member == nullptr) return Result::kInvalidArgument;
  *error = Poll(*member);
  return Result::kSuccess;
}

// Success when the communicator may be used, as NCCL decides it.
Result EnsureReady(const std::shared_ptr<Member>& member) {
  if (member == nullptr) return Result::kInvalidArgument;
  if (member->threads > 0) {
    CountMisuse();
    return Result::kInvalidUsage;
  }
  const Result state = member->clique->state(member->rank);
  if (state != Result::kSuccess) return state == Result::kInProgress ? Result::kInvalidArgument : state;
  if (member->launch || member->end_of_division || member->is_finalized) return Result::kInvalidArgument;
  return Result::kSuccess;
}

Result GetUniqueId(UniqueId* id) {
  State& state = TheState();
  MutexLock lock(state.mutex);
  std::memset(id->bytes, 0x5A, sizeof(id->bytes));
  const std::int64_t number = ++state.ids;
  std::memcpy(id->bytes, &number, sizeof(number));
  return Result::kSuccess;
}

Result InitRank(Comm* comm, int size, UniqueId id, int rank, nccl::Config* config) {
  if (size < 1 || config->magic != 0xcafebeef || config->size < sizeof(nccl::Config)) return Result::kInvalidArgument;
  std::shared_ptr<FakeClique> clique;
  {
    State& state = TheState();
    MutexLock lock(state.mutex);
    std::shared_ptr<FakeClique>& found = state.cliques[KeyOf(id)];
    if (found == nullptr) {
      found = std::make_shared<FakeClique>(size);
      for (const FakeFault& fault : state.faults[KeyOf(id)]) found->Inject(fault);
    }
    clique = found;
  }
  if (const Result joined = clique->Join(rank, size); joined != Result::kSuccess) return joined;
  auto member = std::make_shared<Member>();
  member->clique = std::move(clique);
  member->rank = rank;
  FakeCuda::Table().current_device(&member->device);
  member->is_blocking = config->blocking != 0;
  *comm = Add(member);
  if (!member->is_blocking) return Result::kInProgress;
  while (member->clique->state(rank) == Result::kInProgress) std::this_thread::yield();
  return member->clique->state(rank);
}

Result Destroy(Comm comm) {
  const std::shared_ptr<Member> member = Find(comm);
  if (member == nullptr) return Result::kInvalidArgument;
  if (Current().peers_notice_ends) member->clique->Close(member->rank);
  State& state = TheState();
  MutexLock lock(state.mutex);
  state.left_behind += member->belongings();
  state.members.erase(comm);
  return Result::kSuccess;
}

Result Finalize(Comm comm) {
  const std::shared_ptr<Member> member = Find(comm);
  if (const Result ready = EnsureReady(member); ready != Result::kSuccess) return ready;
  member->is_finalized = true;
  if (!member->is_blocking) return Result::kInProgress;
  return InCall(*member).Await([&] { return !member->clique->is_busy(member->rank); });
}

void FreeAborted(Comm comm) {
  const std::shared_ptr<Member> member = Find(comm);
  if (member->threads > 0) CountMisuse();
  State& state = TheState();
  MutexLock lock(state.mutex);
  state.changed.Wait(state.mutex, [&]() TUTTI_REQUIRES(state.mutex) { return !state.settings.aborts_hang; });
  state.members.erase(comm);
}

Result Abort(Comm comm) {
  const std::shared_ptr<Member> member = Find(comm);
  if (member == nullptr) return Result::kInvalidArgument;
  member->launch = nullptr;
  member->clique->Abort(member->rank, /*for_good=*/true);
  if (Current().peers_notice_ends) member->clique->Close(member->rank);
  if (group_depth > 0) {
    group_aborts.push_back(comm);
  } else {
    FreeAborted(comm);
  }
  return Result::kSuccess;
}

Result Revoke(Comm comm, int) {
  const std::shared_ptr<Member> member = Find(comm);
  if (member == nullptr) return Result::kInvalidArgument;
  member->clique->Abort(member->rank, /*for_good=*/false);
  return Result::kSuccess;
}

// Ends a split or a shrink, of which `end` says what was made: now, or at later polls.
template <typename End>
Result Divide(Member& parent, Comm* made, const nccl::Config* config, End end) {
  const bool is_blocking = config == nullptr ? parent.is_blocking : config->blocking != 0;
  *made = nullptr;
  const auto has_ended = [end, made, is_blocking, device = parent.device] {
    const std::optional<FakeClique::Child> child = end();
    if (!child) return false;
    if (child->clique == nullptr) return true;
    auto member = std::make_shared<Member>();
    member->clique = child->clique;
    member->rank = child->rank;
    member->device = device;
    member->is_blocking = is_blocking;
    *made = Add(std::move(member));
    return true;
  };
  if (parent.is_blocking) return InCall(parent).Await(has_ended);
  parent.end_of_division = has_ended;
  return Result::kInProgress;
}

Result Split(Comm comm, int color, int key, Comm* made, nccl::Config* config) {
  const std::shared_ptr<Member> member = Find(comm);
  if (const Result ready = EnsureReady(member); ready != Result::kSuccess) return ready;
  const std::int64_t number = member->splits++;
  member->clique->BeginSplit(member->rank, number, color, key);
  return Divide(*member, made, config,
                [clique = member->clique, rank = member->rank, number] { return clique->EndSplit(rank, number); });
}

Result Shrink(Comm comm, int* dead, int count, Comm* made, nccl::Config* config, int flags) {
  const std::shared_ptr<Member> member = Find(comm);
  if (member == nullptr || count < 1) return Result::kInvalidArgument;
  std::vector<int> excluded(dead, dead + count);
  std::sort(excluded.begin(), excluded.end());
  if (std::binary_search(excluded.begin(), excluded.end(), member->rank)) return Result::kInvalidArgument;
  if ((flags & nccl::kShrinkAbort) != 0) {
    member->launch = nullptr;
    member->clique->Abort(member->rank, /*for_good=*/false);
    member->clique->AwaitIdle(member->rank);
  }
  if (const Result ready = EnsureReady(member); ready != Result::kSuccess) return ready;
  member->clique->BeginShrink(member->rank, excluded);
  return Divide(*member, made, config,
                [clique = member->clique, rank = member->rank, excluded] { return clique->EndShrink(rank, excluded); });
}

Result GroupStart() {
  ++group_depth;
  return Result::kSuccess;
}

// Puts the calls of one communicator on their stream, now or at the next poll.
Result Launch(const std::shared_ptr<Member>& member, CUstream_st* stream, const FakeGroup& calls) {
  const std::int64_t patience_ns = absl::ToInt64Nanoseconds(Current().patience);
  auto launch = [member = member.get(), clique = member->clique, stream, calls, patience_ns] {
    const int rank = member->rank;
    if (FakeCuda::IsCaptured(stream)) {
      // Every launch of the graph is another launch of NCCL.
      const CudaError error = FakeCuda::LaunchCollective(stream, [clique, rank, calls, patience_ns] {
        clique->Perform(rank, clique->Announce(rank), calls, patience_ns);
      });
      return error == kCudaSuccess ? Result::kSuccess : Result::kUnhandledCudaError;
    }
    const std::int64_t number = clique->Announce(rank);
    const CudaError error = FakeCuda::LaunchCollective(
        stream, [clique, rank, number, calls, patience_ns] { clique->Perform(rank, number, calls, patience_ns); });
    return error == kCudaSuccess ? Result::kSuccess : Result::kUnhandledCudaError;
  };
  if (member->is_blocking) {
    const InCall in_call(*member);
    const Result met = member->clique->Meet(member->rank, calls, patience_ns);
    return met == Result::kSuccess ? launch() : met;
  }
  member->launch = std::move(launch);
  State& state = TheState();
  MutexLock lock(state.mutex);
  ++state.non_blocking_groups;
  return Result::kInProgress;
}

Result LaunchAll(const std::vector<Grouped>& grouped) {
  Result result = Result::kSuccess;
  std::vector<const Member*> launched;
  for (const Grouped& first : grouped) {
    if (first.member->is_blocking != grouped.front().member->is_blocking) return Result::kInvalidArgument;
  }
  for (const Grouped& first : grouped) {
    if (std::find(launched.begin(), launched.end(), first.member.get()) != launched.end()) continue;
    launched.push_back(first.member.get());
    FakeGroup calls;
    for (const Grouped& each : grouped) {
      if (each.member == first.member) calls.push_back(each.call);
    }
    const Result one = Launch(first.member, first.stream, calls);
    if (one != Result::kSuccess) result = one;
  }
  return result;
}

Result GroupEnd() {
  if (group_depth == 0) return Result::kInvalidUsage;
  if (--group_depth > 0) return Result::kSuccess;
  const std::vector<Grouped> grouped = std::exchange(group, {});
  Result result = std::exchange(group_error, Result::kSuccess);
  if (result == Result::kSuccess) result = LaunchAll(grouped);  // otherwise nothing is launched
  for (const Comm comm : std::exchange(group_aborts, {})) FreeAborted(comm);
  return result;
}

Result Call(Comm comm, CUstream_st* stream, FakeCall call) {
  GroupStart();
  const std::shared_ptr<Member> member = Find(comm);
  Result result = EnsureReady(member);
  const bool has_root = HasRoot(call.collective);
  if (result == Result::kSuccess && has_root && (call.root < 0 || call.root >= member->clique->size())) {
    result = Result::kInvalidArgument;
  }
  if (result == Result::kSuccess && call.op >= RedOp::kFirstCreated) {
    const auto found = member->factors.find(call.op);
    if (found == member->factors.end()) result = Result::kInvalidArgument;
    if (found != member->factors.end()) call.factor = found->second;
    call.op = RedOp::kFirstCreated;
  }
  if (result == Result::kSuccess) group.push_back({member, stream, call});
  if (group_error == Result::kSuccess) group_error = result;
  const Result ended = GroupEnd();
  return result == Result::kSuccess ? ended : result;
}

Result CreatePreMulSum(RedOp* op, void* scalar, DataType type, nccl::ScalarResidence, Comm comm) {
  const std::shared_ptr<Member> member = Find(comm);
  if (const Result ready = EnsureReady(member); ready != Result::kSuccess) return ready;
  if (type != DataType::kFloat32 && type != DataType::kFloat64) return Result::kInvalidArgument;
  *op = static_cast<RedOp>(static_cast<int>(RedOp::kFirstCreated) + member->operators++);
  member->factors[*op] =
      type == DataType::kFloat32 ? *static_cast<const float*>(scalar) : *static_cast<const double*>(scalar);
  return Result::kSuccess;
}

Result DestroyOperator(RedOp op, Comm comm) {
  const std::shared_ptr<Member> member = Find(comm);
  return member != nullptr && member->factors.erase(op) == 1 ? Result::kSuccess : Result::kInvalidArgument;
}

Result ChangeRegistrations(Comm comm, int change) {
  const std::shared_ptr<Member> member = Find(comm);
  const Result ready = EnsureReady(member);
  if (ready == Result::kSuccess) member->registrations += change;
  return ready;
}

const char* GetErrorString(Result result) {
  switch (result) {
    case Result::kRemoteError:
      return "remote process exited or there was a network error";
    case Result::kInvalidUsage:
      return "invalid usage";
    case Result::kInvalidArgument:
      return "invalid argument";
    case Result::kInternalError:
      return "internal error";
    default:
      return "an error of the fake NCCL";
  }
}

nccl::Library MakeTable() {
  using Kind = Collective;
  nccl::Library table;
  table.version = 22809;
  table.path = "tests/harness/fake_nccl.cc";
  table.get_version = [](int* version) {
    *version = 22809;
    return Result::kSuccess;
  };
  table.get_unique_id = GetUniqueId;
  table.get_error_string = GetErrorString;
  table.get_last_error = [](Comm) {
    thread_local std::string text;
    text = FakeLastError();
    return text.c_str();
  };
  table.comm_init_rank_config = InitRank;
  table.comm_finalize = Finalize;
  table.comm_destroy = Destroy;
  table.comm_abort = Abort;
  table.comm_get_async_error = GetAsyncError;
  table.comm_count = [](Comm comm, int* size) {
    const std::shared_ptr<Member> member = Find(comm);
    const Result ready = EnsureReady(member);
    if (ready == Result::kSuccess) *size = member->clique->size();
    return ready;
  };
  table.comm_user_rank = [](Comm comm, int* rank) {
    const std::shared_ptr<Member> member = Find(comm);
    const Result ready = EnsureReady(member);
    if (ready == Result::kSuccess) *rank = member->rank;
    return ready;
  };
  table.group_start = GroupStart;
  table.group_end = GroupEnd;
  table.all_reduce = [](const void* src, void* dst, std::size_t count, DataType type, RedOp op, Comm comm,
                        CUstream_st* stream) {
    return Call(comm, stream, {Kind::kAllReduce, type, op, 1, count, 0, src, dst});
  };
  table.reduce = [](const void* src, void* dst, std::size_t count, DataType type, RedOp op, int root, Comm comm,
                    CUstream_st* stream) {
    return Call(comm, stream, {Kind::kReduce, type, op, 1, count, root, src, dst});
  };
  table.broadcast = [](const void* src, void* dst, std::size_t count, DataType type, int root, Comm comm,
                       CUstream_st* stream) {
    return Call(comm, stream, {Kind::kBroadcast, type, RedOp::kSum, 1, count, root, src, dst});
  };
  table.reduce_scatter = [](const void* src, void* dst, std::size_t count, DataType type, RedOp op, Comm comm,
                            CUstream_st* stream) {
    return Call(comm, stream, {Kind::kReduceScatter, type, op, 1, count, 0, src, dst});
  };
  table.all_gather = [](const void* src, void* dst, std::size_t count, DataType type, Comm comm, CUstream_st* stream) {
    return Call(comm, stream, {Kind::kAllGather, type, RedOp::kSum, 1, count, 0, src, dst});
  };
  table.send = [](const void* src, std::size_t count, DataType type, int peer, Comm comm, CUstream_st* stream) {
    return Call(comm, stream, {Kind::kSend, type, RedOp::kSum, 1, count, peer, src, nullptr});
  };
  table.recv = [](void* dst, std::size_t count, DataType type, int peer, Comm comm, CUstream_st* stream) {
    return Call(comm, stream, {Kind::kRecv, type, RedOp::kSum, 1, count, peer, nullptr, dst});
  };
  table.red_op_create_pre_mul_sum = CreatePreMulSum;
  table.red_op_destroy = DestroyOperator;
  table.comm_split = Split;
  table.comm_shrink = Shrink;
  table.comm_revoke = Revoke;
  table.comm_register = [](Comm comm, void* data, std::size_t, void** handle) {
    *handle = data;
    return ChangeRegistrations(comm, 1);
  };
  table.comm_deregister = [](Comm comm, void*) { return ChangeRegistrations(comm, -1); };
  table.all_to_all = [](const void* src, void* dst, std::size_t count, DataType type, Comm comm, CUstream_st* stream) {
    return Call(comm, stream, {Kind::kAllToAll, type, RedOp::kSum, 1, count, 0, src, dst});
  };
  table.gather = [](const void* src, void* dst, std::size_t count, DataType type, int root, Comm comm,
                    CUstream_st* stream) {
    return Call(comm, stream, {Kind::kGather, type, RedOp::kSum, 1, count, root, src, dst});
  };
  table.scatter = [](const void* src, void* dst, std::size_t count, DataType type, int root, Comm comm,
                     CUstream_st* stream) {
    return Call(comm, stream, {Kind::kScatter, type, RedOp::kSum, 1, count, root, src, dst});
  };
  return table;
}

}  // namespace

const nccl::Library& FakeNccl::Table() {
  static const nccl::Library& table = *new nccl::Library(MakeTable());
  return table;
}

nccl::Library FakeNccl::TableOf(int version) {
  nccl::Library table = Table();
  table.version = version;
  if (version < 22800) {
    table.all_to_all = nullptr;
    table.gather = nullptr;
    table.scatter = nullptr;
    table.comm_revoke = nullptr;
  }
  if (version < 22700) table.comm_shrink = nullptr;
  return table;
}

void FakeNccl::Inject(const nccl::UniqueId& id, const FakeFault& fault) {
  State& state = TheState();
  MutexLock lock(state.mutex);
  state.faults[KeyOf(id)].push_back(fault);
}

FakeNccl::With::With(const Settings& settings) {
  State& state = TheState();
  MutexLock lock(state.mutex);
  state.settings = settings;
}

FakeNccl::With::~With() {
  State& state = TheState();
  MutexLock lock(state.mutex);
  state.settings = {};
  state.changed.NotifyAll();
}

int FakeNccl::LivingCommunicators() {
  State& state = TheState();
  MutexLock lock(state.mutex);
  return static_cast<int>(state.members.size());
}

int FakeNccl::NonBlockingGroups() {
  State& state = TheState();
  MutexLock lock(state.mutex);
  return state.non_blocking_groups;
}

int FakeNccl::Misuses() {
  State& state = TheState();
  MutexLock lock(state.mutex);
  return state.misuses;
}

int FakeNccl::LeftBehind() {
  State& state = TheState();
  MutexLock lock(state.mutex);
  return state.left_behind;
}

}  // namespace tutti
