// The host executor's record of one call: the memory of the call, and how far the steps of its current run have come.
#ifndef TUTTI_ENGINE_HOST_RUN_H_
#define TUTTI_ENGINE_HOST_RUN_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engine/host_memory.h"
#include "engine/lent_memory.h"
#include "engine/run.h"
#include "tutti/transport.h"

namespace tutti {

class HostExecutor;

// Everything that a run needs is allocated when it is made or given its buffers: a run allocates nothing, but for the
// first scratch for private buffers on a rank whose own buffers are not (see Branch).
class HostRun final : public Run {
 public:
  HostRun(HostExecutor& executor, Call& call, Channel& channel, const Program& program, void* scratch);
  ~HostRun() override;

  absl::Status SetBuffers(const void* in, void* out, void* state) override;
  std::int64_t held_bytes() const override { return memory_.held_bytes(); }
  absl::Status WaitOnStream(CUstream_st* stream) override;
  bool started() const override { return started_; }
  std::uint32_t steps_left() const override { return steps_left_; }
  std::optional<Blocker> FindBlocker(absl::FunctionRef<bool(const Blocker&)> matches) const override;
  absl::Span<std::byte> output_lent_to_peers() const override;

 private:
  friend class HostExecutor;

  struct Message : Completion {
    HostRun* run = nullptr;
    StepId step = 0;
    bool under_way = false;
  };

  // Stands in dependencies_left_ for a step that is complete.
  static constexpr std::uint32_t kStepDone = 0xffffffff;
  // Stands in beginning_left_ for a run that has no branch, or has passed it.
  static constexpr StepId kNoBranch = 0xffffffff;

  // Allocates what a run of `some` needs.
  void MakeRoomFor(const Program& some);
  void Begin();
  // Begins the run, and returns the number of bytes that were copied into staging, as `past_cache` says.
  std::int64_t Start(PastCacheChoice& past_cache);
  // Does what Start does, for a run that is not refused and whose steps the caller begins.
  std::int64_t StartWithoutSteps(PastCacheChoice& past_cache);
  // Lets the steps of the call's program begin, the first `taken` of which have been taken already.
  void BeginStepsAfter(StepId taken);
  // Whether the shared beginning of both programs is complete, so that Branch must be called: until then no other step
  // begins.
  bool at_branch() const { return beginning_left_ == 0; }
  // Whether `step` is not held back until the branch.
  bool MayBegin(StepId step) const { return beginning_left_ == kNoBranch || step < program.shared_beginning; }
  // Goes on with the program for private buffers if any rank's buffers are private, otherwise with the call's own
  // program. An error when what a peer has told of its buffers is wrong.
  absl::Status Branch();
  // Lets the steps of `some` begin, the first `taken` of which have been taken already.
  void TakeUp(const Program& some, StepId taken);
  void SetScratch();
  void Complete(StepId step);
  // Refuses the run, because rank `by` cannot take part: no further step of the run is taken on this rank, nor on the
  // other ranks once they have heard of the refusal.
  void TellRefusal(Rank by);
  // The error with which the run ends because of a message. The error of a wrong length is put in terms of the call.
  absl::Status MessageError() const;
  // Adds the rank with which each message is that is under way.
  void AddMessagePeers(std::vector<Rank>& peers) const;
  std::byte* AddressOf(const Operand& operand) const { return bases[operand.base] + operand.offset; }

  HostExecutor& executor_;
  HostMemory memory_;
  bool started_ = false;
  bool refusal_told_ = false;
  bool failed_ = false;  // a run has ended with an error of its group: no peer says when it has left the run's memory
  absl::Status message_error_;  // the first error of the run's messages
  std::optional<Rank> unread_;  // the peer whose process could not be read: a step of the run is never completed
  std::uint32_t steps_left_ = 0;
  StepId beginning_left_ = kNoBranch;  // steps that are left before the branch
  std::uint32_t output_steps_left_ = 0;
  std::uint32_t messages_left_ = 0;  // messages under way
  std::vector<std::uint32_t> dependencies_left_;
  std::vector<StepId> ready_;      // steps that can be taken now; a stack
  std::vector<StepId> waiting_;    // kWait steps that are not satisfied
  std::vector<Message> messages_;  // one per step; empty when the program has no messages
  std::vector<void*> dsts_;        // the destinations of the step that is being computed
  std::vector<const void*> srcs_;
  // Where the memory goes when the run is destroyed, perhaps after its channel.
  const std::shared_ptr<LentMemory> lent_;
  const std::shared_ptr<const Borrowers> borrowers_;
};

}  // namespace tutti

#endif  // TUTTI_ENGINE_HOST_RUN_H_
