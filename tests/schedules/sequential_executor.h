// Runs the plans of all ranks in one thread, on plain vectors: the smallest thing that can tell a right plan from a
// wrong one. The executor is as unkind as the contract of plans allows: scratch starts as garbage, a message moves only
// when both ends are ready, ready steps run first to last or last to first, and what a rank's caller owns (input,
// output) turns to garbage as soon as that rank has ended.
#ifndef TESTS_SCHEDULES_SEQUENTIAL_EXECUTOR_H_
#define TESTS_SCHEDULES_SEQUENTIAL_EXECUTOR_H_

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/combine.h"
#include "kernels/reduce.h"
#include "plan/meetings.h"
#include "plan/spaces.h"
#include "tutti/native.h"
#include "tutti/plan.h"

namespace tutti {

using Bytes = std::vector<std::byte>;
inline constexpr std::byte kGarbage{0xA5};

class SequentialExecutor {
 public:
  enum class Order { kFirstToLast, kLastToFirst };

  // `in` and `out`: what the spaces kIn and kOut of each rank hold at the start.
  SequentialExecutor(const std::vector<Plan>& plans, std::vector<Bytes> in, std::vector<Bytes> out, Order order)
      : plans_(WithBlocksLocated(plans)),
        meetings_(MeetingsOf(plans_)),
        order_(order),
        memory_(plans.size()),
        done_(plans.size()),
        results_(plans.size()) {
    for (std::size_t rank = 0; rank < plans.size(); ++rank) {
      const auto garbage = [](std::int64_t bytes) { return Bytes(static_cast<std::size_t>(bytes), kGarbage); };
      memory_[rank] = {std::move(in[rank]), std::move(out[rank]), garbage(plans[rank].scratch_bytes),
                       Bytes(static_cast<std::size_t>(plans[rank].state_bytes))};
      done_[rank].resize(plans[rank].steps.size());
      for (StepId id = 0; id < plans[rank].steps.size(); ++id) {
        const Step& step = plans[rank].steps[id];
        if (step.kind == StepKind::kSend) sends_[{static_cast<Rank>(rank), step.peer, step.ordinal}] = id;
      }
    }
    signals_.resize(plans.size());
    ended_.resize(plans.size());
  }

  // Sets the factor of every rank's call, which is 1 by default.
  void SetFactors(std::function<double(Rank)> factor_of) { factor_of_ = std::move(factor_of); }

  // Runs every rank but `held` as far as it gets; "" when all of these ended, otherwise who waits for what.
  std::string Run(Rank held = kSelf) {
    const Rank size = static_cast<Rank>(plans_.size());
    for (bool moved = true; moved;) {
      moved = false;
      for (Rank rank = 0; rank < size; ++rank) {
        if (rank != held) moved |= RunRank(rank);
      }
    }
    std::string waiting;
    for (Rank rank = 0; rank < size; ++rank) {
      if (ended_[rank] || rank == held) continue;
      const auto step = std::find(done_[rank].begin(), done_[rank].end(), false) - done_[rank].begin();
      absl::StrAppend(&waiting, "rank ", rank, " waits at step ", step, " (", Name(plans_[rank].steps[step].kind),
                      " peer ", plans_[rank].steps[step].peer, "); ");
    }
    return waiting;
  }

  bool ended(Rank rank) const { return ended_[rank]; }
  // The space kOut of a rank that has ended, as it was at its end.
  const Bytes& out(Rank rank) const { return results_[rank]; }

 private:
  bool RunRank(Rank rank) {
    const auto steps = static_cast<StepId>(plans_[rank].steps.size());
    bool moved = false;
    for (StepId i = 0; i < steps; ++i) {
      const StepId id = order_ == Order::kFirstToLast ? i : steps - 1 - i;
      if (!done_[rank][id] && IsReady(rank, id) && Perform(rank, plans_[rank].steps[id])) {
        done_[rank][id] = true;
        moved = true;
      }
    }
    const bool all = std::all_of(done_[rank].begin(), done_[rank].end(), [](bool done) { return done; });
    if (all && !ended_[rank]) {
      ended_[rank] = moved = true;
      results_[rank] = memory_[rank][1];
      std::fill(memory_[rank][0].begin(), memory_[rank][0].end(), kGarbage);
      std::fill(memory_[rank][1].begin(), memory_[rank][1].end(), kGarbage);
    }
    return moved;
  }

  bool IsReady(Rank rank, StepId id) const {
    const auto deps = plans_[rank].deps_of(plans_[rank].steps[id]);
    return std::all_of(deps.begin(), deps.end(), [&](StepId dep) { return done_[rank][dep]; });
  }

  void* Address(Rank rank, const Ref& ref) {
    Bytes& space = memory_[ref.owner == kSelf ? rank : ref.owner][static_cast<std::size_t>(ref.space)];
    return space.data() + ref.offset;
  }

  // False when the step has to wait for another rank. A send is performed by its receive.
  bool Perform(Rank rank, const Step& step) {
    const auto dsts = plans_[rank].dsts(step);
    const auto srcs = plans_[rank].srcs(step);
    switch (step.kind) {
      case StepKind::kSend:
        return false;
      case StepKind::kRecv: {
        const auto send = sends_.find({step.peer, rank, step.ordinal});
        if (send == sends_.end() || !IsReady(step.peer, send->second)) return false;
        const Ref& src = plans_[step.peer].srcs(plans_[step.peer].steps[send->second])[0];
        if (src.bytes != dsts[0].bytes) return false;
        std::copy_n(static_cast<const std::byte*>(Address(step.peer, src)), src.bytes,
                    static_cast<std::byte*>(Address(rank, dsts[0])));  // an empty space has no address for memcpy
        done_[step.peer][send->second] = true;
        return true;
      }
      case StepKind::kSignal:
        ++signals_[rank];
        return true;
      case StepKind::kWait:
        return signals_[step.peer] >= step.ordinal;
      case StepKind::kReduce: {
        std::vector<const void*> operands;
        for (const Ref& src : srcs) operands.push_back(Address(rank, src));
        Bytes result(static_cast<std::size_t>(srcs[0].bytes));
        void* const place = result.data();
        kernels::Reduce(srcs[0].dtype, step.op, step.divisor, {&place, 1}, operands, srcs[0].count(),
                        kernels::Stores::kCached);
        for (const Ref& dst : dsts) Convert(rank, dst, srcs[0].dtype, place);
        return true;
      }
      case StepKind::kCopy: {
        const Bytes source = Copied(rank, srcs[0]);
        for (const Ref& dst : dsts) Convert(rank, dst, srcs[0].dtype, source.data());
        return true;
      }
      case StepKind::kScale:
        if (step.by_factor) {
          kernels::Multiply(dsts[0].dtype, Address(rank, dsts[0]), Address(rank, srcs[0]), factor_of_(rank),
                            dsts[0].count());
          return true;
        }
        kernels::Divide(dsts[0].dtype, Address(rank, dsts[0]), Address(rank, srcs[0]), step.divisor, dsts[0].count());
        return true;
      case StepKind::kCombine: {
        std::vector<const void*> operands;
        for (const Ref& src : srcs) operands.push_back(Address(rank, src));
        kernels::Combine(dsts[0].dtype, Address(rank, dsts[0]), operands, plans_[rank].coefficients_of(step).data(),
                         dsts[0].count(), step.finite ? kernels::Results::kFinite : kernels::Results::kAll);
        return true;
      }
      case StepKind::kEncode:
      case StepKind::kDecode:
        return Translate(rank, step);
      case StepKind::kNative:
        return PerformNative(rank, step);
    }
    return false;
  }

  // Performs the native steps of all ranks of a group together, as soon as all of them are ready. Elements are combined
  // from the last rank to the first.
  bool PerformNative(Rank rank, const Step& step) {
    const auto id = static_cast<StepId>(&step - plans_[rank].steps.data());
    const auto is_its = [&](const Meeting& meeting) {
      return std::any_of(meeting.steps.begin(), meeting.steps.end(), [&](const PlanStep& at) {
        return at.plan == static_cast<std::size_t>(rank) && at.step == id;
      });
    };
    const Meeting& meeting = *std::find_if(meetings_.begin(), meetings_.end(), is_its);
    const auto size = static_cast<std::size_t>(NativeSizeOf(plans_[rank], step));
    const auto is_ready = [&](const PlanStep& at) { return IsReady(static_cast<Rank>(at.plan), at.step); };
    if (meeting.steps.size() != size || !std::all_of(meeting.steps.begin(), meeting.steps.end(), is_ready)) {
      return false;
    }
    std::vector<Bytes> inputs(size);
    for (const PlanStep& at : meeting.steps) {
      const Plan& plan = plans_[at.plan];
      const Step& its = plan.steps[at.step];
      const auto place = static_cast<std::size_t>(NativePlaceOf(plan, its, plan.rank));
      if (its.num_srcs > 0) inputs[place] = Copied(plan.rank, plan.srcs(its)[0]);
    }
    for (const PlanStep& at : meeting.steps) {
      const Plan& plan = plans_[at.plan];
      const Step& its = plan.steps[at.step];
      if (its.num_dsts > 0) {
        const Bytes result = NativeResult(plan, its, inputs);
        std::copy(result.begin(), result.end(), static_cast<std::byte*>(Address(plan.rank, plan.dsts(its)[0])));
      }
      done_[at.plan][at.step] = true;
    }
    return true;
  }

  static Bytes NativeResult(const Plan& plan, const Step& step, const std::vector<Bytes>& inputs) {
    const CollectiveSpec spec = NativeSpecOf(plan, step);
    const std::ptrdiff_t block = spec.count * SizeOf(spec.dtype);
    const std::ptrdiff_t own = NativePlaceOf(plan, step, plan.rank) * block;
    const auto part = [&](const Bytes& whole) { return Bytes(whole.begin() + own, whole.begin() + own + block); };
    Bytes result;
    if (Reduces(spec.collective)) {
      std::vector<const void*> operands;
      for (auto input = inputs.rbegin(); input != inputs.rend(); ++input) operands.push_back(input->data());
      result.resize(inputs[0].size());
      void* const place = result.data();
      kernels::Reduce(spec.dtype, spec.op, step.divisor, {&place, 1}, operands,
                      static_cast<std::int64_t>(inputs[0].size()) / SizeOf(spec.dtype), kernels::Stores::kCached);
      return spec.collective == Collective::kReduceScatter ? part(result) : result;
    }
    if (spec.collective == Collective::kBroadcast) return inputs[static_cast<std::size_t>(spec.root)];
    if (spec.collective == Collective::kScatter) return part(inputs[static_cast<std::size_t>(spec.root)]);
    for (const Bytes& input : inputs) {
      const Bytes piece = spec.collective == Collective::kAllToAll ? part(input) : input;
      result.insert(result.end(), piece.begin(), piece.end());
    }
    return result;
  }

  // Encodes or decodes; false when the message is not what its codec wrote.
  bool Translate(Rank rank, const Step& step) {
    const CodecChoice& choice = plans_[rank].codecs[step.codec];
    const Ref& dst = plans_[rank].dsts(step)[0];
    const Ref& src = plans_[rank].srcs(step)[0];
    const auto floats = [&](const Ref& ref) {
      return absl::Span<float>(static_cast<float*>(Address(rank, ref)), static_cast<std::size_t>(ref.count()));
    };
    const auto bytes = [&](const Ref& ref) {
      return absl::Span<std::uint8_t>(static_cast<std::uint8_t*>(Address(rank, ref)),
                                      static_cast<std::size_t>(ref.bytes));
    };
    if (step.kind == StepKind::kEncode) {
      choice.codec->encode(floats(src), choice.options, /*draw=*/static_cast<std::uint64_t>(rank), bytes(dst));
      return true;
    }
    return choice.codec->decode(bytes(src), choice.options, step.accumulate, floats(dst)).ok();
  }

  Bytes Copied(Rank rank, const Ref& ref) {
    const auto* from = static_cast<const std::byte*>(Address(rank, ref));
    return {from, from + ref.bytes};
  }

  void Convert(Rank rank, const Ref& dst, DType type, const void* src) {
    kernels::Convert(dst.dtype, Address(rank, dst), type, src, dst.count(), kernels::Stores::kCached);
  }

  const std::vector<Plan> plans_;
  const std::vector<Meeting> meetings_;
  Order order_;
  std::function<double(Rank)> factor_of_ = [](Rank) { return 1.0; };
  std::vector<std::array<Bytes, 4>> memory_;  // by rank, then Space
  std::map<std::tuple<Rank, Rank, std::uint32_t>, StepId> sends_;
  std::vector<std::vector<bool>> done_;
  std::vector<std::uint32_t> signals_;
  std::vector<bool> ended_;
  std::vector<Bytes> results_;
};

}  // namespace tutti

#endif  // TESTS_SCHEDULES_SEQUENTIAL_EXECUTOR_H_
