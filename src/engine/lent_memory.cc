#include "engine/lent_memory.h"

#include <algorithm>
#include <new>
#include <utility>

#include "memory/arena.h"

namespace tutti {
namespace {

// Loans that are looked at whenever one is added: more than one, so that a list that has become long shrinks.
constexpr std::size_t kLooks = 4;

bool AllHaveCompleted(const Borrowers& borrowers, int lane, std::uint64_t run) {
  return std::all_of(borrowers.begin(), borrowers.end(),
                     [&](const Borrower& borrower) { return borrower.HasCompleted(lane, run); });
}

// Resets what the next channel counts from 0. The generation stays, because it tells peers of the last channel that the
// owner has left that channel; the records of failures stay, too, because each carries its generation.
void Clear(ControlBlock& block) {
  for (std::array<LaneHalf, 2>& lane : block.halves) {
    for (LaneHalf& half : lane) half.signal.store(0, std::memory_order_relaxed);
  }
  for (LaneControl& lane : block.lanes) lane.completed.store(0, std::memory_order_relaxed);
  for (CallRecord& record : block.records) record.number.store(0, std::memory_order_relaxed);
  for (MessageRecord& record : block.messages) record.number.store(0, std::memory_order_relaxed);
  block.calls.store(0, std::memory_order_relaxed);
}

}  // namespace

std::vector<LentMemory::Loan> LentMemory::TakeEnded(std::size_t most) {
  std::vector<Loan> ended;
  const MutexLock lock(mutex_);
  for (std::size_t looks = std::min(most, loans_.size()); looks > 0; --looks) {
    Loan loan = std::move(loans_.front());
    loans_.pop_front();
    const bool has_ended = AllHaveCompleted(*loan.borrowers, loan.lane, loan.run);
    has_ended ? ended.push_back(std::move(loan)) : loans_.push_back(std::move(loan));
  }
  return ended;
}

void LentMemory::Keep(Buffer buffer, std::shared_ptr<const Borrowers> borrowers, int lane, std::uint64_t run) {
  if (buffer.data() == nullptr || AllHaveCompleted(*borrowers, lane, run)) return;
  {
    const MutexLock lock(mutex_);
    loans_.push_back({std::move(buffer), std::move(borrowers), lane, run});
  }
  TakeEnded(kLooks);
}

void LentMemory::KeepUntilClosed(Buffer buffer, std::shared_ptr<const Borrowers> borrowers) {
  Keep(std::move(buffer), std::move(borrowers), /*lane=*/0, kNoRun);
}

void LentMemory::Sweep() { TakeEnded(SIZE_MAX); }

ControlBlock* ControlBlocks::TakeClosed() {
  const MutexLock lock(mutex_);
  for (std::size_t looks = closed_.size(); looks > 0; --looks) {
    Closed closed = std::move(closed_.front());
    closed_.pop_front();
    bool left = true;
    for (int lane = 0; lane < kLanes; ++lane) {
      left = left && AllHaveCompleted(*closed.borrowers, lane, closed.runs[static_cast<std::size_t>(lane)]);
    }
    if (left) return closed.block;
    closed_.push_back(std::move(closed));
  }
  return nullptr;
}

absl::StatusOr<ControlBlock*> ControlBlocks::Open() {
  if (ControlBlock* const block = TakeClosed(); block != nullptr) {
    Clear(*block);
    block->generation.fetch_add(1, std::memory_order_seq_cst);
    return block;
  }
  absl::StatusOr<Buffer> memory = arena_->Allocate(sizeof(ControlBlock));
  if (!memory.ok()) return memory.status();
  // `new ControlBlock` would touch, and so make resident, all of the scratch.
  auto* const block = reinterpret_cast<ControlBlock*>(memory->data());
  for (std::array<LaneHalf, 2>& lane : block->halves) new (&lane) std::array<LaneHalf, 2>;
  for (LaneControl& lane : block->lanes) new (&lane) LaneControl;
  for (CallRecord& record : block->records) new (&record) CallRecord;
  for (MessageRecord& record : block->messages) new (&record) MessageRecord;
  new (&block->generation) std::atomic<std::uint64_t>(0);
  new (&block->calls) std::atomic<std::uint64_t>(0);
  new (&block->failed_by) std::atomic<std::uint64_t>(0);
  new (&block->failure) FailureCause;
  const MutexLock lock(mutex_);
  memory_.push_back(*std::move(memory));
  return block;
}

void ControlBlocks::Close(ControlBlock* block, std::shared_ptr<const Borrowers> borrowers,
                          const std::array<std::uint64_t, kLanes>& runs) {
  block->generation.fetch_add(1, std::memory_order_seq_cst);
  const MutexLock lock(mutex_);
  closed_.push_back({block, std::move(borrowers), runs});
}

}  // namespace tutti
