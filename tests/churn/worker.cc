#include "tests/churn/worker.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/clock.h"
#include "tests/churn/blame.h"
#include "tests/churn/calls.h"

namespace tutti::churn {
namespace {

constexpr std::array<ReduceOp, 6> kExactOps = {ReduceOp::kSum,        ReduceOp::kMin,       ReduceOp::kMax,
                                               ReduceOp::kBitwiseAnd, ReduceOp::kBitwiseOr, ReduceOp::kBitwiseXor};
constexpr std::size_t kMaxGroupsKept = 3;
constexpr std::uint64_t kAllRanks = ~std::uint64_t{0};

}  // namespace

// A call with the memory of this rank. A call in place has one memory, in which input and output have their offsets.
struct Worker::PlannedCall {
  SharedCall call;
  Memory in;
  Memory out;
  std::byte* in_data = nullptr;
  std::byte* out_data = nullptr;
  Work work;
};

Worker::Worker(const Round& round, int world, Rank rank, int thread, Communicator& communicator, Complain complain)
    : round_(round),
      rank_(rank),
      communicator_(communicator),
      complain_(std::move(complain)),
      choices_({round.seed, static_cast<std::uint64_t>(round.number), static_cast<std::uint64_t>(world),
                static_cast<std::uint64_t>(thread), 1}),
      own_({round.seed, static_cast<std::uint64_t>(round.number), static_cast<std::uint64_t>(world),
            static_cast<std::uint64_t>(thread), 2, static_cast<std::uint64_t>(rank)}),
      waits_since_ns_(MonotonicNanos()) {}

absl::Status Worker::DoNext() {
  const int drawn = choices_.Below(10);
  if (drawn < 6) return MakeCalls(communicator_, choices_.Between(1, 4));
  if (drawn < 8) return MakeGroups();
  // A strategy makes its calls in a group of its own, of all ranks.
  return WithMembers(UseStrategy(communicator_), kAllRanks, true);
}

void Worker::BeginWait(absl::string_view what) {
  waits_since_ns_ = MonotonicNanos();
  const MutexLock lock(mutex_);
  doing_ = std::string(what);
}

std::string Worker::doing() const {
  const MutexLock lock(mutex_);
  return doing_;
}

absl::Status Worker::Wait(PlannedCall& planned) {
  BeginWait(absl::StrCat(Name(planned.call.collective), " of ", planned.call.count, " ", Name(planned.call.dtype)));
  return planned.work.Wait();
}

absl::StatusOr<Worker::PlannedCall> Worker::Plan(Communicator& on) {
  PlannedCall planned;
  SharedCall& call = planned.call;
  call.collective = kAllCollectives[static_cast<std::size_t>(choices_.Below(10))];  // all but send and recv
  call.dtype = choices_.Of<DType>(kAllDTypes);
  call.op = choices_.Of<ReduceOp>(kExactOps);
  while (Reduces(call.collective) && !HasOp(call.dtype, call.op)) call.dtype = choices_.Of<DType>(kAllDTypes);
  call.root = choices_.Below(on.size());
  call.in_place = HasInPlaceForm(call.collective) && choices_.OneIn(2);
  call.salt = choices_.Below(static_cast<int>(kPeriod));
  const int limit = choices_.OneIn(20) ? round_.largest_count : choices_.Of<int>({2, 64, 5'000, 100'000});
  call.count = choices_.Below(std::min(limit, round_.largest_count));
  if (InputCount({.collective = call.collective, .count = 1}, call.root, on.size()) > 1 ||
      OutputCount({.collective = call.collective, .count = 1}, call.root, on.size()) > 1) {
    call.count /= on.size();  // the count is of one rank's part
  }
  const bool in_arena = choices_.OneIn(2);
  const CollectiveSpec spec = SpecOf(call, on.rank(), on.size());
  const std::int64_t in_bytes = InputCount(spec, on.rank(), on.size()) * SizeOf(call.dtype);
  const std::int64_t out_bytes = OutputCount(spec, on.rank(), on.size()) * SizeOf(call.dtype);
  const bool one_memory = call.in_place && in_bytes > 0 && out_bytes > 0;
  absl::StatusOr<Memory> in = Memory::Make(on, one_memory ? std::max(in_bytes, out_bytes) : in_bytes, in_arena);
  if (!in.ok()) return in.status();
  absl::StatusOr<Memory> out = Memory::Make(on, one_memory ? 0 : out_bytes, in_arena);
  if (!out.ok()) return out.status();
  planned.in = *std::move(in);
  planned.out = *std::move(out);
  planned.in.Poison();
  planned.out.Poison();
  planned.in_data = planned.in.data();
  planned.out_data = one_memory ? planned.in.data() : planned.out.data();
  if (one_memory && in_bytes < out_bytes) planned.in_data += on.rank() * in_bytes;
  if (one_memory && out_bytes < in_bytes) planned.out_data += on.rank() * out_bytes;
  Fill(planned.in_data, call.dtype, in_bytes / SizeOf(call.dtype),
       [&](std::int64_t i) { return InputValue(call, on.rank(), i); });
  return planned;
}

// A send to the next rank, and a recv from the one before.
absl::StatusOr<std::vector<Worker::PlannedCall>> Worker::PlanExchange(Communicator& on) {
  std::vector<PlannedCall> planned(2);
  SharedCall call = {.dtype = choices_.Of<DType>(kAllDTypes), .count = choices_.Below(20'000)};
  call.salt = choices_.Below(static_cast<int>(kPeriod));
  const bool in_arena = choices_.OneIn(2);
  for (PlannedCall& one : planned) {
    const bool sends = &one == planned.data();
    absl::StatusOr<Memory> memory = Memory::Make(on, call.count * SizeOf(call.dtype), in_arena);
    if (!memory.ok()) return memory.status();
    one.call = call;
    one.call.collective = sends ? Collective::kSend : Collective::kRecv;
    one.call.root = (on.rank() + (sends ? 1 : on.size() - 1)) % on.size();
    (sends ? one.in : one.out) = *std::move(memory);
    one.in_data = one.in.data();
    one.out_data = one.out.data();
  }
  Fill(planned[0].in_data, call.dtype, call.count, [&](std::int64_t i) { return InputValue(call, on.rank(), i); });
  planned[1].out.Poison();
  return planned;
}

Work Worker::Start(Communicator& on, PlannedCall& planned) {
  const CollectiveSpec spec = SpecOf(planned.call, on.rank(), on.size());
  const CallOptions options = {.caller_drives = own_.OneIn(3), .background = own_.OneIn(8)};
  return on.Call(spec, planned.in_data, planned.out_data, options);
}

void Worker::CheckResult(Communicator& on, PlannedCall& planned) {
  const SharedCall& call = planned.call;
  std::byte* at = planned.out_data;
  for (const Block& block : ExpectedOutput(call, on.rank(), on.size())) {
    const std::optional<std::int64_t> wrong = FirstWrong(at, call.dtype, block.count, block.values);
    if (wrong.has_value()) {
      complain_(absl::StrCat("wrong result: rank ", rank_, " found ", NumberAt(at, call.dtype, *wrong), " and not ",
                             block.values(*wrong), " at element ", *wrong, " of a block of ",
                             ToString(SpecOf(call, on.rank(), on.size())), " over ", on.size(), " ranks",
                             call.in_place ? ", in place" : "", ", which ended OK"));
      return;
    }
    at += block.count * SizeOf(call.dtype);
  }
}

absl::Status Worker::MakeCalls(Communicator& on, int calls) {
  std::vector<PlannedCall> planned;
  for (int i = 0; i < calls; ++i) {
    if (on.size() > 1 && choices_.OneIn(6)) {
      absl::StatusOr<std::vector<PlannedCall>> exchange = PlanExchange(on);
      if (!exchange.ok()) return exchange.status();
      std::move(exchange->begin(), exchange->end(), std::back_inserter(planned));
      continue;
    }
    absl::StatusOr<PlannedCall> call = Plan(on);
    if (!call.ok()) return call.status();
    planned.push_back(*std::move(call));
  }
  for (PlannedCall& call : planned) call.work = Start(on, call);
  absl::Status first;
  std::int64_t failed_wait_ns = 0;
  for (PlannedCall& call : planned) {
    const absl::Status status = Wait(call);
    if (status.ok()) {
      CheckResult(on, call);
    } else if (first.ok()) {
      first = status;
      failed_wait_ns = waits_since_ns_;
    }
  }
  if (!first.ok()) waits_since_ns_ = failed_wait_ns;
  Rest(std::move(planned));
  return first;
}

void Worker::Rest(std::vector<PlannedCall> calls) {
  CheckEndedCalls();
  resting_.clear();
  for (PlannedCall& call : calls) {
    call.in.Poison();
    call.out.Poison();
    resting_.push_back(std::move(call.in));
    resting_.push_back(std::move(call.out));
  }
}

void Worker::DropWhatIsKept() {
  groups_.clear();
  Rest({});
}

void Worker::CheckEndedCalls() {
  for (const Memory& memory : resting_) {
    const std::optional<std::int64_t> written = memory.FirstWritten();
    if (!written.has_value()) continue;
    complain_(absl::StrCat("wrong write: byte ", *written, " of ", memory.bytes(), " of rank ", rank_,
                           " was written after the call had ended that the memory was lent to"));
    return;
  }
}

// Adds the members of a group to the group's error: JudgeError needs the members, because a group and the world may
// end by different ranks. An error that names its members already is that of a group made from this group.
absl::Status Worker::WithMembers(const absl::Status& error, std::uint64_t chosen, bool inside) const {
  if (error.ok() || absl::StrContains(error.message(), kOfGroup)) return error;
  std::vector<Rank> members;
  for (Rank rank = 0; rank < communicator_.size(); ++rank) {
    if (((chosen >> rank & 1) != 0) == inside) members.push_back(rank);
  }
  return absl::Status(error.code(), absl::StrCat(error.message(), kOfGroup, absl::StrJoin(members, ", "), ")"));
}

// Makes groups of some ranks and uses each once; every rank drops the groups in an order of its own, some of them
// later.
absl::Status Worker::MakeGroups() {
  std::vector<std::unique_ptr<Communicator>> made;
  const int splits = choices_.Between(1, 3);
  for (int i = 0; i < splits; ++i) {
    const std::uint64_t members = choices_.Next();
    const bool others_too = choices_.OneIn(2);
    const bool inside = (members >> communicator_.rank() & 1) != 0;
    const int color = inside ? 1 : others_too ? 0 : -1;
    ++splits_;
    BeginWait("Split");
    absl::StatusOr<std::unique_ptr<Communicator>> group = communicator_.Split(color, communicator_.rank());
    if (!group.ok()) return group.status();
    // The calls of a group are drawn from a seed of its own, equal on its ranks; then choices_, equal on all ranks,
    // goes on where it was.
    const Choices before = choices_;
    choices_ = Choices({members, inside ? 1U : 0U});
    absl::Status used;
    if (*group != nullptr) used = MakeCalls(**group, 1);
    choices_ = before;
    if (!used.ok()) return WithMembers(used, members, inside);
    if (*group != nullptr) made.push_back(*std::move(group));
  }
  while (!made.empty()) {
    const auto dropped = static_cast<std::ptrdiff_t>(own_.Below(static_cast<int>(made.size())));
    if (own_.OneIn(4)) groups_.push_back(std::move(made[static_cast<std::size_t>(dropped)]));
    made.erase(made.begin() + dropped);
  }
  while (groups_.size() > kMaxGroupsKept) groups_.erase(groups_.begin() + own_.Below(2));
  return absl::OkStatus();
}

}  // namespace tutti::churn
