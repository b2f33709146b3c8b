// The ranks of one communicator of the fake NCCL, as threads of this process: what they have enqueued meets here.
#ifndef TUTTI_TESTS_HARNESS_FAKE_CLIQUE_H_
#define TUTTI_TESTS_HARNESS_FAKE_CLIQUE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "base/mutex.h"
#include "transports/nccl/library.h"
#include "tutti/collective.h"

namespace tutti {

// One call of NCCL, with its arguments.
struct FakeCall {
  Collective collective = Collective::kAllReduce;
  nccl::DataType type = nccl::DataType::kFloat32;
  nccl::RedOp op = nccl::RedOp::kSum;  // of an operator with a factor: kFirstCreated
  double factor = 1;
  std::size_t count = 0;
  int root = 0;  // the peer of send and recv
  const void* src = nullptr;
  void* dst = nullptr;
};

// Calls of one rank that begin together.
using FakeGroup = std::vector<FakeCall>;

// What goes wrong at one launch of one rank.
struct FakeFault {
  int rank = 0;
  std::int64_t launch = 0;  // counted from 0 in each communicator
  // The communicator's error from then on; kSuccess: the rank just never comes. Either way the launch lasts until it is
  // aborted, and its peers' launches until they are.
  nccl::Result error = nccl::Result::kSuccess;
};

class FakeClique {
 public:
  explicit FakeClique(int size);

  // Every function may be called by any thread.

  // kInvalidUsage when the size is another one or the rank is taken.
  nccl::Result Join(int rank, int size);
  void Inject(const FakeFault& fault);

  // Performs `group` of `rank` when its peers come to theirs; called by the rank's stream. `launch` is the number that
  // Announce gave. Returns when all calls are done, the launch is aborted, or `patience_ns` is over, which counts as a
  // deadlock and becomes the communicator's error.
  std::int64_t Announce(int rank);
  void Perform(int rank, std::int64_t launch, const FakeGroup& group, std::int64_t patience_ns);
  // Whether launches that were announced have not ended.
  bool is_busy(int rank);

  // NCCL connects to peers when it is first given a call of a kind, and waits for theirs in that call. Returns when all
  // ranks that `group` needs have come with the same kinds of calls, now or before: at once where the rank itself has
  // done so before. kInternalError when the rank is aborted, or `patience_ns` is over, which becomes the error of the
  // communicator.
  nccl::Result Meet(int rank, const FakeGroup& group, std::int64_t patience_ns);

  // Ends the launches so far, and if `for_good` later ones, and waits in calls, too.
  void Abort(int rank, bool for_good);
  // The rank's connections are closed: kRemoteError becomes the error of peers whose launches lack a call of the rank.
  void Close(int rank);
  bool is_aborted(int rank);
  void AwaitIdle(int rank);

  // kInProgress until all ranks have joined; the communicator's error.
  nccl::Result state(int rank);
  void SetError(int rank, nccl::Result error, std::string text);

  // What a split or a shrink has made for a rank: its new clique, or none for a rank without a color.
  struct Child {
    std::shared_ptr<FakeClique> clique;
    int rank = 0;
  };
  // Says what `rank` wants; the answer is nullopt until all ranks that must have said theirs. The faults of a clique go
  // to the first one that is split from it with all its ranks.
  void BeginSplit(int rank, std::int64_t number, int color, int key);
  std::optional<Child> EndSplit(int rank, std::int64_t number);
  void BeginShrink(int rank, const std::vector<int>& dead);
  std::optional<Child> EndShrink(int rank, const std::vector<int>& dead);

  int size() const { return size_; }

 private:
  struct Member {
    bool has_joined = false;
    bool is_aborted = false;
    bool is_closed = false;
    std::int64_t aborted_before = 0;  // launches with lower numbers end at once
    std::int64_t launches = 0;
    std::int64_t ended = 0;
    std::int64_t collectives = 0;
    std::map<int, std::int64_t> sends;  // by peer
    std::map<int, std::int64_t> recvs;
    nccl::Result error = nccl::Result::kSuccess;
  };
  // A collective with all its ranks, or a message with its two ends.
  struct Meeting {
    std::map<int, FakeCall> calls;  // by rank
    bool is_done = false;
  };
  // 0, number: a collective; 1, number, sender, receiver: a message.
  using Key = std::tuple<int, std::int64_t, int, int>;
  // 0, collective, is long, 0: a collective by one of two algorithms; 1, 0, sender, receiver: messages.
  using Kind = std::tuple<int, int, int, int>;
  struct Wish {
    int color = 0;
    int key = 0;
  };
  struct Division {
    std::map<int, Wish> wishes;
    std::map<int, Child> children;
    bool is_done = false;
  };

  Key KeyOf(int rank, const FakeCall& call) TUTTI_REQUIRES(mutex_);
  void Arrive(int rank, const Key& key, const FakeCall& call) TUTTI_REQUIRES(mutex_);
  bool HasEnded(int rank, std::int64_t launch) TUTTI_REQUIRES(mutex_);
  // Whether a rank that is closed has not come to `meeting`.
  bool LacksAClosedRank(const Key& key, const Meeting& meeting) TUTTI_REQUIRES(mutex_);
  void SetErrorLocked(int rank, nccl::Result error, const std::string& text) TUTTI_REQUIRES(mutex_);
  static Kind KindOf(int rank, const FakeCall& call);
  bool HasMet(const Kind& kind) TUTTI_REQUIRES(mutex_);
  void Divide(Division& division) TUTTI_REQUIRES(mutex_);

  const int size_;
  Mutex mutex_;
  Condition changed_;
  std::vector<Member> members_ TUTTI_GUARDED_BY(mutex_);
  std::map<Key, std::shared_ptr<Meeting>> meetings_ TUTTI_GUARDED_BY(mutex_);
  std::map<Kind, std::set<int>> met_ TUTTI_GUARDED_BY(mutex_);  // the ranks that have come
  std::vector<FakeFault> faults_ TUTTI_GUARDED_BY(mutex_);
  std::map<std::int64_t, Division> splits_ TUTTI_GUARDED_BY(mutex_);
  std::map<std::vector<int>, Division> shrinks_ TUTTI_GUARDED_BY(mutex_);
};

// The last error of any communicator of the fake, as text.
std::string FakeLastError();

}  // namespace tutti

#endif  // TUTTI_TESTS_HARNESS_FAKE_CLIQUE_H_
