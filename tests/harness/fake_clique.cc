#include "tests/harness/fake_clique.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "tests/harness/fake_collectives.h"

namespace tutti {
namespace {

// Collectives of more bytes take another algorithm.
constexpr std::size_t kLongBytes = 1 << 16;

struct LastError {
  Mutex mutex;
  std::string text TUTTI_GUARDED_BY(mutex);
};

LastError& TheLastError() {
  static LastError& last = *new LastError;
  return last;
}

}  // namespace

std::string FakeLastError() {
  LastError& last = TheLastError();
  MutexLock lock(last.mutex);
  return last.text;
}

FakeClique::FakeClique(int size) : size_(size), members_(static_cast<std::size_t>(size)) {}

nccl::Result FakeClique::Join(int rank, int size) {
  MutexLock lock(mutex_);
  if (size != size_ || rank < 0 || rank >= size_ || members_[rank].has_joined) return nccl::Result::kInvalidUsage;
  members_[rank].has_joined = true;
  return nccl::Result::kSuccess;
}

void FakeClique::Inject(const FakeFault& fault) {
  MutexLock lock(mutex_);
  faults_.push_back(fault);
}

std::int64_t FakeClique::Announce(int rank) {
  MutexLock lock(mutex_);
  return members_[rank].launches++;
}

bool FakeClique::is_busy(int rank) {
  MutexLock lock(mutex_);
  return members_[rank].ended < members_[rank].launches;
}

bool FakeClique::HasEnded(int rank, std::int64_t launch) {
  return members_[rank].is_aborted || launch < members_[rank].aborted_before;
}

FakeClique::Key FakeClique::KeyOf(int rank, const FakeCall& call) {
  Member& member = members_[rank];
  if (call.collective == Collective::kSend) return {1, member.sends[call.root]++, rank, call.root};
  if (call.collective == Collective::kRecv) return {1, member.recvs[call.root]++, call.root, rank};
  return {0, member.collectives++, 0, 0};
}

void FakeClique::Arrive(int rank, const Key& key, const FakeCall& call) {
  std::shared_ptr<Meeting>& meeting = meetings_[key];
  if (meeting == nullptr) meeting = std::make_shared<Meeting>();
  const bool is_message = std::get<0>(key) == 1;
  // The ends of a message of a rank to itself have one rank.
  const int place = is_message ? static_cast<int>(call.collective == Collective::kRecv) : rank;
  meeting->calls[place] = call;
  if (static_cast<int>(meeting->calls.size()) < (is_message ? 2 : size_)) return;
  if (is_message) {
    const FakeCall& sent = meeting->calls.at(0);
    const FakeCall& received = meeting->calls.at(1);
    if (sent.count != received.count || sent.type != received.type) {
      const std::string text = absl::StrCat("rank ", std::get<2>(key), " sends ", sent.count, " elements, rank ",
                                            std::get<3>(key), " receives ", received.count);
      SetErrorLocked(std::get<2>(key), nccl::Result::kInvalidUsage, text);
      SetErrorLocked(std::get<3>(key), nccl::Result::kInvalidUsage, text);
      return;
    }
    std::memmove(received.dst, sent.src, sent.count * FakeSizeOf(sent.type));
  } else if (const std::string text = Disagreement(meeting->calls); !text.empty()) {
    for (int each = 0; each < size_; ++each) SetErrorLocked(each, nccl::Result::kInvalidUsage, text);
    return;
  } else {
    PerformCollective(meeting->calls);
  }
  meeting->is_done = true;
  meetings_.erase(key);
  changed_.NotifyAll();
}

void FakeClique::Perform(int rank, std::int64_t launch, const FakeGroup& group, std::int64_t patience_ns) {
  const std::int64_t end_ns = NanosAfter(MonotonicNanos(), absl::Nanoseconds(patience_ns));
  MutexLock lock(mutex_);
  Member& member = members_[rank];
  const auto has_ended = [&]() TUTTI_REQUIRES(mutex_) { return HasEnded(rank, launch); };
  const auto fault = std::find_if(faults_.begin(), faults_.end(),
                                  [&](const FakeFault& each) { return each.rank == rank && each.launch == launch; });
  if (fault != faults_.end()) {
    if (fault->error != nccl::Result::kSuccess) SetErrorLocked(rank, fault->error, "an injected fault");
    changed_.Wait(mutex_, has_ended);
  }
  std::vector<std::pair<Key, std::shared_ptr<Meeting>>> under_way;
  if (!has_ended()) {
    for (const FakeCall& call : group) {
      const Key key = KeyOf(rank, call);
      meetings_.try_emplace(key, std::make_shared<Meeting>());
      under_way.emplace_back(key, meetings_[key]);
      Arrive(rank, key, call);
    }
  }
  const auto is_done = [](const auto& each) { return each.second->is_done; };
  const auto is_lost = [&](const auto& each) TUTTI_REQUIRES(mutex_) {
    return !is_done(each) && LacksAClosedRank(each.first, *each.second);
  };
  const auto is_over = [&]() TUTTI_REQUIRES(mutex_) {
    return has_ended() || std::all_of(under_way.begin(), under_way.end(), is_done) ||
           std::any_of(under_way.begin(), under_way.end(), is_lost);
  };
  if (!changed_.WaitUntil(mutex_, end_ns, is_over)) {
    SetErrorLocked(rank, nccl::Result::kInternalError,
                   absl::StrCat("rank ", rank, " waits in launch ", launch, " (", Name(group.front().collective),
                                ") for a peer that does not come: a deadlock"));
    changed_.Wait(mutex_, has_ended);
  } else if (!has_ended() && std::any_of(under_way.begin(), under_way.end(), is_lost)) {
    SetErrorLocked(rank, nccl::Result::kRemoteError, "Connection closed by remote peer");
    changed_.Wait(mutex_, has_ended);
  }
  // A peer that comes later must not touch the memory of a launch that has ended.
  for (const auto& [key, meeting] : under_way) {
    if (meeting->is_done) continue;
    const auto& [is_message, number, sender, receiver] = key;
    if (is_message == 0) meeting->calls.erase(rank);
    if (is_message == 1 && sender == rank) meeting->calls.erase(0);
    if (is_message == 1 && receiver == rank) meeting->calls.erase(1);
  }
  ++member.ended;
  changed_.NotifyAll();
}

bool FakeClique::LacksAClosedRank(const Key& key, const Meeting& meeting) {
  const auto& [is_message, number, sender, receiver] = key;
  if (is_message == 1) {
    return (members_[sender].is_closed && !meeting.calls.contains(0)) ||
           (members_[receiver].is_closed && !meeting.calls.contains(1));
  }
  for (int rank = 0; rank < size_; ++rank) {
    if (members_[rank].is_closed && !meeting.calls.contains(rank)) return true;
  }
  return false;
}

FakeClique::Kind FakeClique::KindOf(int rank, const FakeCall& call) {
  if (call.collective == Collective::kSend) return {1, 0, rank, call.root};
  if (call.collective == Collective::kRecv) return {1, 0, call.root, rank};
  return {0, static_cast<int>(call.collective), call.count * FakeSizeOf(call.type) > kLongBytes ? 1 : 0, 0};
}

bool FakeClique::HasMet(const Kind& kind) {
  const auto& [is_message, number, sender, receiver] = kind;
  const std::size_t all = is_message == 0 ? static_cast<std::size_t>(size_) : sender == receiver ? 1 : 2;
  return met_[kind].size() == all;
}

nccl::Result FakeClique::Meet(int rank, const FakeGroup& group, std::int64_t patience_ns) {
  const std::int64_t end_ns = NanosAfter(MonotonicNanos(), absl::Nanoseconds(patience_ns));
  MutexLock lock(mutex_);
  for (const FakeCall& call : group) met_[KindOf(rank, call)].insert(rank);
  changed_.NotifyAll();
  const auto is_over = [&]() TUTTI_REQUIRES(mutex_) {
    if (members_[rank].is_aborted) return true;
    return std::all_of(group.begin(), group.end(),
                       [&](const FakeCall& call) TUTTI_REQUIRES(mutex_) { return HasMet(KindOf(rank, call)); });
  };
  if (!changed_.WaitUntil(mutex_, end_ns, is_over)) {
    SetErrorLocked(rank, nccl::Result::kInternalError,
                   absl::StrCat("rank ", rank, " waits in a call (", Name(group.front().collective),
                                ") for a peer that does not come: a deadlock"));
    return nccl::Result::kInternalError;
  }
  return members_[rank].is_aborted ? nccl::Result::kInternalError : nccl::Result::kSuccess;
}

void FakeClique::Abort(int rank, bool for_good) {
  MutexLock lock(mutex_);
  members_[rank].is_aborted |= for_good;
  members_[rank].aborted_before = members_[rank].launches;
  changed_.NotifyAll();
}

void FakeClique::Close(int rank) {
  MutexLock lock(mutex_);
  members_[rank].is_closed = true;
  changed_.NotifyAll();
}

bool FakeClique::is_aborted(int rank) {
  MutexLock lock(mutex_);
  return members_[rank].is_aborted;
}

void FakeClique::AwaitIdle(int rank) {
  MutexLock lock(mutex_);
  Member& member = members_[rank];
  changed_.Wait(mutex_, [&]() TUTTI_REQUIRES(mutex_) { return member.ended == member.launches; });
}

nccl::Result FakeClique::state(int rank) {
  MutexLock lock(mutex_);
  if (members_[rank].error != nccl::Result::kSuccess) return members_[rank].error;
  const bool all = std::all_of(members_.begin(), members_.end(), [](const Member& each) { return each.has_joined; });
  return all ? nccl::Result::kSuccess : nccl::Result::kInProgress;
}

void FakeClique::SetErrorLocked(int rank, nccl::Result error, const std::string& text) {
  if (members_[rank].error == nccl::Result::kSuccess) members_[rank].error = error;
  LastError& last = TheLastError();
  MutexLock lock(last.mutex);
  last.text = text;
}

void FakeClique::SetError(int rank, nccl::Result error, std::string text) {
  MutexLock lock(mutex_);
  SetErrorLocked(rank, error, text);
}

void FakeClique::Divide(Division& division) {
  std::map<int, std::vector<std::pair<int, int>>> colors;  // (key, rank) by color
  for (const auto& [rank, wish] : division.wishes) {
    if (wish.color < 0) {
      division.children[rank] = {};
    } else {
      colors[wish.color].emplace_back(wish.key, rank);
    }
  }
  for (auto& [color, ranks] : colors) {
    std::sort(ranks.begin(), ranks.end());
    const int size = static_cast<int>(ranks.size());
    const auto clique = std::make_shared<FakeClique>(size);
    if (size == size_) {
      for (const FakeFault& fault : std::exchange(faults_, {})) clique->Inject(fault);
    }
    for (int place = 0; place < size; ++place) {
      clique->Join(place, size);
      division.children[ranks[static_cast<std::size_t>(place)].second] = {clique, place};
    }
  }
  division.is_done = true;
}

void FakeClique::BeginSplit(int rank, std::int64_t number, int color, int key) {
  MutexLock lock(mutex_);
  Division& division = splits_[number];
  division.wishes[rank] = {color, key};
  if (static_cast<int>(division.wishes.size()) == size_) Divide(division);
}

std::optional<FakeClique::Child> FakeClique::EndSplit(int rank, std::int64_t number) {
  MutexLock lock(mutex_);
  const Division& division = splits_[number];
  if (!division.is_done) return std::nullopt;
  return division.children.at(rank);
}

void FakeClique::BeginShrink(int rank, const std::vector<int>& dead) {
  MutexLock lock(mutex_);
  Division& division = shrinks_[dead];
  division.wishes[rank] = {0, rank};
  if (division.wishes.size() + dead.size() == static_cast<std::size_t>(size_)) Divide(division);
}

std::optional<FakeClique::Child> FakeClique::EndShrink(int rank, const std::vector<int>& dead) {
  MutexLock lock(mutex_);
  const Division& division = shrinks_[dead];
  if (!division.is_done) return std::nullopt;
  return division.children.at(rank);
}

}  // namespace tutti
