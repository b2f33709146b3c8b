// The instructions that the engine takes for a step of each kind that runs on hosts, and for a call, in one thread:
// no plan waits for anything that has not happened.
#include <deque>
#include <functional>
#include <string>

#include "tests/engine/two_ranks.h"
#include "tests/harness/count_instructions.h"
#include "tutti/plan_builder.h"

namespace tutti {
namespace {

constexpr int kSteps = 256;    // of a plan, so that what the run of a plan costs is little beside them
constexpr int kElements = 16;  // of a step, so that what a step costs is not the kernel's
constexpr int kCalls = 64;     // of a plan of one step
constexpr CollectiveSpec kSpec{.collective = Collective::kAllReduce, .count = kSteps * kElements};

using Author = std::function<void(PlanBuilder&)>;

// The elements of step `i`.
Ref PartOf(const Ref& whole, int i) { return whole.Elements(i * kElements, kElements); }

class Counted {
 public:
  explicit Counted(bool mapped) : world_(mapped), mapped_(mapped) {
    for (TestRank& rank : world_.ranks) {
      for (int i = 0; i < 2; ++i) buffers_.push_back(rank.arena->Allocate(kSpec.count * 4).value());
    }
  }
  ~Counted() {
    for (Call* const call : calls_) call->Release();
  }

  // A call of `rank` whose plan `author` writes.
  Call& NewCall(Rank rank, const Author& author) {
    PlanBuilder b("counted", kSpec, rank, 2, {.peers_mapped = mapped_});
    author(b);
    Call* const call =
        calls_.emplace_back(Call::Create(Compile(std::move(b).Build().value()), *world_.ranks[rank].channel));
    const auto first = static_cast<std::size_t>(2 * rank);
    EXPECT_EQ(call->SetBuffers(buffers_[first].data(), buffers_[first + 1].data(), nullptr), absl::OkStatus());
    return *call;
  }

  // Calls of both ranks in which rank 0 writes `first` and rank 1 `second`; where an author is null, that rank has no
  // call.
  struct Both {
    Call* calls[2];
  };
  Both NewCalls(const Author& first, const Author& second) {
    return {first != nullptr ? &NewCall(0, first) : nullptr, second != nullptr ? &NewCall(1, second) : nullptr};
  }

  // Takes the steps of `both` by the executors, rank 0 first, whose steps must not wait for those of rank 1, except
  // messages.
  void Execute(const Both& both) {
    for (Rank r = 0; r < 2; ++r) {
      if (both.calls[r] == nullptr) continue;
      both.calls[r]->KeepForEngine();
      world_.ranks[r].executor->Add(both.calls[r]->run());
      world_.ranks[r].executor->Poll();
    }
    for (Rank r = 0; r < 2; ++r) {
      while (both.calls[r] != nullptr && !both.calls[r]->done(1)) {
        for (TestRank& rank : world_.ranks) rank.executor->Poll(), rank.transport->Progress();
      }
    }
  }

  // Counts the instructions of a step of the plans that `first` and `second` write.
  void CountSteps(absl::string_view name, int steps, const Author& first, const Author& second) {
    Execute(NewCalls(first, second));
    const Both both = NewCalls(first, second);
    CountInstructions(name, steps, [&] { Execute(both); });
    for (const Call* const call : both.calls) {
      if (call == nullptr) continue;
      EXPECT_EQ(call->result(), absl::OkStatus());
    }
  }

  // Counts the instructions of both ranks for a call that their threads make and wait for, rank 0 first.
  void CountCalls(absl::string_view name, const Author& author) {
    const Both both = NewCalls(author, author);
    const auto calls = [&] {
      for (int i = 0; i < kCalls; ++i) {
        std::uint32_t runs[2];
        for (Rank r = 0; r < 2; ++r) runs[r] = both.calls[r]->Submit({.caller_drives = true});
        for (const Rank r : {1, 0}) {
          EXPECT_EQ(both.calls[r]->Wait(runs[r], /*output_only=*/false, kNeverNanos), absl::OkStatus());
        }
      }
    };
    calls();
    CountInstructions(name, kCalls, calls);
  }

 private:
  TwoRanks world_;
  const bool mapped_;
  std::deque<Buffer> buffers_;  // input and output of rank 0, and of rank 1
  std::deque<Call*> calls_;
};

Author ForEachPart(const std::function<void(PlanBuilder&, int part)>& write) {
  return [write](PlanBuilder& b) {
    for (int i = 0; i < kSteps; ++i) write(b, i);
  };
}

void CountAll() {
  Counted messages(/*mapped=*/false);
  messages.CountSteps("copy, per step", kSteps,
                      ForEachPart([](PlanBuilder& b, int i) { b.Copy(PartOf(b.out(), i), PartOf(b.in(), i)); }),
                      nullptr);
  messages.CountSteps("copy after copy, per step", kSteps, ForEachPart([](PlanBuilder& b, int i) {
                        b.Copy(PartOf(b.out(), i), i == 0 ? PartOf(b.in(), 0) : PartOf(b.out(), i - 1));
                      }),
                      nullptr);
  messages.CountSteps(
      "reduce, per step", kSteps, ForEachPart([](PlanBuilder& b, int i) {
        b.Reduce(PartOf(b.out(), i), {PartOf(b.in(), i), PartOf(b.in(), kSteps - 1 - i)}, ReduceOp::kSum);
      }),
      nullptr);
  messages.CountSteps("send and recv, per message", kSteps,
                      ForEachPart([](PlanBuilder& b, int i) { b.Send(1, PartOf(b.in(), i)); }),
                      ForEachPart([](PlanBuilder& b, int i) { b.Recv(0, PartOf(b.out(), i)); }));
  messages.CountCalls("calls of one copy on two ranks, per pair",
                      [](PlanBuilder& b) { b.Copy(PartOf(b.out(), 0), PartOf(b.in(), 0)); });

  Counted mapped(/*mapped=*/true);
  mapped.CountSteps(
      "copy from a mapped peer, per step", kSteps, [](PlanBuilder& b) { b.Signal(); },
      [](PlanBuilder& b) {
        b.Wait(0);
        for (int i = 0; i < kSteps; ++i) b.Copy(PartOf(b.out(), i), PartOf(b.in(), i).At(0));
      });
  mapped.CountSteps("signal and wait, per pair", kSteps, ForEachPart([](PlanBuilder& b, int) { b.Signal(); }),
                    ForEachPart([](PlanBuilder& b, int) { b.Wait(0); }));
  mapped.CountCalls("calls of one signal and one wait on two ranks, per pair", [](PlanBuilder& b) {
    b.Signal();
    b.Wait(1 - b.rank());
  });
}

}  // namespace
}  // namespace tutti

int main() { return tutti::CountOnAvx2(tutti::CountAll); }
