// Memory that peers may still read although this rank has given it back.
//
// A call that has ended here may go on at a peer, which then reads this rank's announcement, signals and scratch. The
// owner of this memory (a channel, a bound plan, a cached call) may be destroyed at any time: it hands the memory over
// to the classes below, and the arena gets it when no peer can touch it any more. The caller's own buffers need no such
// care: by the time a call ends OK, every step of a peer that touches them is complete (docs/decisions/0001).
#ifndef TUTTI_ENGINE_LENT_MEMORY_H_
#define TUTTI_ENGINE_LENT_MEMORY_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "engine/control_block.h"
#include "tutti/buffer.h"

namespace tutti {

class Arena;

// A run that no peer ever completes: what is lent until then is lent until the peers have closed the channel.
inline constexpr std::uint64_t kNoRun = std::numeric_limits<std::uint64_t>::max();

// A peer that maps the memory of a channel.
struct Borrower {
  const ControlBlock* block = nullptr;  // the peer's own block of the same channel
  std::uint64_t generation = 0;         // the generation of `block` while the peer uses it for this channel
  // Whether the peer has ended (Transport::HasEnded), and so touches no memory any more; null: nobody can tell.
  std::shared_ptr<const std::atomic<bool>> ended = nullptr;

  // Whether the peer has completed `run` of `lane`, or HasClosed. Any thread.
  bool HasCompleted(int lane, std::uint64_t run) const {
    // `completed` is read before `generation`: a block that has been opened again counts its runs anew.
    return block->lanes[static_cast<std::size_t>(lane)].completed.load(std::memory_order_seq_cst) >= run || HasClosed();
  }
  // Whether the peer has closed its channel, or ended without. Any thread.
  bool HasClosed() const {
    return block->generation.load(std::memory_order_seq_cst) != generation || (ended != nullptr && ended->load());
  }
};
using Borrowers = std::vector<Borrower>;

// The buffers that peers may still use. Thread-safe.
class LentMemory {
 public:
  // Frees `buffer` some time after every borrower has completed `run` of `lane`.
  void Keep(Buffer buffer, std::shared_ptr<const Borrowers> borrowers, int lane, std::uint64_t run);
  // For memory of a failed call, whose runs no peer completes: frees `buffer` some time after every borrower has closed
  // the channel.
  void KeepUntilClosed(Buffer buffer, std::shared_ptr<const Borrowers> borrowers);
  // Frees all buffers that the borrowers have left.
  void Sweep();

 private:
  struct Loan {
    Buffer buffer;
    std::shared_ptr<const Borrowers> borrowers;
    int lane;
    std::uint64_t run;
  };

  // Looks at up to `most` loans, and takes those that have ended out of the list.
  std::vector<Loan> TakeEnded(std::size_t most);

  Mutex mutex_;
  std::deque<Loan> loans_ TUTTI_GUARDED_BY(mutex_);
};

// The control blocks of a rank. The memory of a block never serves anything else: see control_block.h. Thread-safe.
class ControlBlocks {
 public:
  explicit ControlBlocks(std::shared_ptr<Arena> arena) : arena_(std::move(arena)) {}

  // A cleared block, open for a new channel: one that was closed and that all peers have left, or a new one.
  // ResourceExhausted when the arena has no room for a new one.
  absl::StatusOr<ControlBlock*> Open();
  // Ends the use of `block` by a channel whose peers are `borrowers` and which has made `runs` on its lanes.
  void Close(ControlBlock* block, std::shared_ptr<const Borrowers> borrowers,
             const std::array<std::uint64_t, kLanes>& runs);

 private:
  struct Closed {
    ControlBlock* block;
    std::shared_ptr<const Borrowers> borrowers;
    std::array<std::uint64_t, kLanes> runs;
  };

  ControlBlock* TakeClosed();

  const std::shared_ptr<Arena> arena_;
  Mutex mutex_;
  std::vector<Buffer> memory_ TUTTI_GUARDED_BY(mutex_);
  std::deque<Closed> closed_ TUTTI_GUARDED_BY(mutex_);
};

}  // namespace tutti

#endif  // TUTTI_ENGINE_LENT_MEMORY_H_
