#include "bench/gpu/host_time.h"

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "bench/gpu/raw_nccl.h"
#include "bench/gpu/series.h"
#include "tests/gpu/rank_memory.h"

namespace tutti::gpu {
namespace {

constexpr std::int64_t kCount = 256;
constexpr int kCallsInARow = 8;  // fewer than a communicator of Tutti puts on its stream at a time

// An event of CUDA, as a program uses it that calls NCCL itself on a stream of its own.
class RankEvent {
 public:
  explicit RankEvent(const CudaRuntime& cuda) : cuda_(cuda) {
    Require(cuda_, cuda_.create_event(&event_), "create_event");
  }
  ~RankEvent() { cuda_.destroy_event(event_); }
  RankEvent(const RankEvent&) = delete;
  RankEvent& operator=(const RankEvent&) = delete;

  // Lets `waiting` wait for what is on `stream` so far.
  void Order(CUstream_st* stream, CUstream_st* waiting) const {
    Require(cuda_, cuda_.record_event(event_, stream), "record_event");
    Require(cuda_, cuda_.wait_event(waiting, event_), "wait_event");
  }

 private:
  const CudaRuntime& cuda_;
  CUevent_st* event_ = nullptr;
};

// One way of calling, whose calls are timed one by one. What follows each call, and a row of calls, is not timed.
struct Way {
  Series series;
  std::function<absl::Status()> call;
  std::function<absl::Status()> after_each;
  std::function<absl::Status()> finish;
};

absl::Status MeasureInTurns(CheckedRank& rank, std::vector<Way>& ways, int rounds) {
  for (int round = -2; round < rounds; ++round) {
    for (Way& way : ways) {
      if (round == 0) way.series.Clear();
      for (int i = 0; i < kCallsInARow; ++i) {
        if (absl::Status status = way.series.Time(way.call); !status.ok()) return status;
        if (absl::Status status = way.after_each(); !status.ok()) return status;
      }
      if (absl::Status status = way.finish(); !status.ok()) return status;
      if (absl::Status status = rank.comm.Barrier().Wait(); !status.ok()) return status;
    }
  }
  for (const Way& way : ways) rank.note(way.series.Figure("us", 1e6));
  return absl::OkStatus();
}

}  // namespace

absl::Status MeasureHostTime(CheckedRank& rank) {
  absl::StatusOr<RawNccl> raw = RawNccl::Connect(rank);
  if (!raw.ok()) return raw.status();
  const RankStream mine(rank.device), theirs(rank.device);
  const RankMemory memory(rank.device, 4 * kCount);
  const RankEvent before(rank.cuda()), after(rank.cuda());
  void* const data = memory.data();
  memory.Write(std::vector<std::byte>(4 * kCount));

  absl::StatusOr<BoundPlan> bound = rank.comm.Bind(
      CollectiveSpec{.collective = Collective::kAllReduce, .count = kCount, .in_place = true}, {.out = data});
  if (!bound.ok()) return bound.status();
  std::vector<Work> works;
  const auto call = [&] {
    works.push_back(rank.comm.AllReduce(data, data, kCount, DType::kF32, ReduceOp::kSum, {.stream = mine.get()}));
  };
  const auto finish = [&] {
    absl::Status status;
    for (Work& work : works) status.Update(work.Wait());
    works.clear();
    return status;
  };
  const auto nothing = [] { return absl::OkStatus(); };
  const auto settle = [&] { return raw->Settle(); };
  const auto synchronize = [&] {
    theirs.Synchronize();
    return absl::OkStatus();
  };
  works.reserve(kCallsInARow);
  const auto series = [&](const char* name) { return Series(absl::StrCat("host_time_", name, "_", rank.size())); };
  std::vector<Way> ways;
  ways.push_back({series("tutti"),
                  [&] {
                    call();
                    return absl::OkStatus();
                  },
                  nothing, finish});
  ways.push_back({series("tutti_and_wait_on_stream"),
                  [&] {
                    call();
                    return works.back().WaitOnStream(mine.get());
                  },
                  nothing, finish});
  // A bound plan has one run at a time.
  ways.push_back({series("tutti_bound"),
                  [&] {
                    works.push_back(bound->Start({.stream = mine.get()}));
                    return absl::OkStatus();
                  },
                  finish, nothing});
  ways.push_back({series("nccl"), [&] { return raw->AllReduce(data, kCount, theirs.get()); }, settle, synchronize});
  ways.push_back({series("nccl_and_two_events"),
                  [&] {
                    before.Order(mine.get(), theirs.get());
                    absl::Status status = raw->AllReduce(data, kCount, theirs.get());
                    after.Order(theirs.get(), mine.get());
                    return status;
                  },
                  settle, synchronize});
  // As the bound plan is called: NCCL's threads, too, may have gone to sleep since the call before.
  const auto settle_and_synchronize = [&] {
    absl::Status status = settle();
    theirs.Synchronize();
    return status;
  };
  ways.push_back({series("nccl_alone"), [&] { return raw->AllReduce(data, kCount, theirs.get()); },
                  settle_and_synchronize, nothing});
  return MeasureInTurns(rank, ways, rank.device.is_fake ? 3 : 60);
}

}  // namespace tutti::gpu
