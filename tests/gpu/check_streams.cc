// Calls in the order of streams: the host goes on while inputs are still computed, and what follows waits on the GPU.
#include <atomic>
#include <cstring>
#include <functional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/gpu/rank_check.h"
#include "tests/gpu/rank_memory.h"
#include "tutti/algorithm.h"
#include "tutti/schedule.h"

namespace tutti::gpu {
namespace {

// A gate holds a stream until the host opens the gate. A host that waited for the stream would wait for itself.
class Gate {
 public:
  void Hold(const CudaRuntime& cuda, CUstream_st* stream) {
    Require(cuda,
            cuda.call_host(
                stream, [](void* gate) { static_cast<Gate*>(gate)->Await(); }, this),
            "call_host");
  }
  // False when the stream has not waited so long.
  bool Open() {
    open_ = true;
    return !given_up_;
  }

 private:
  void Await() {
    for (const absl::Time end = absl::Now() + absl::Seconds(15); !open_; absl::SleepFor(absl::Microseconds(100))) {
      if (absl::Now() < end) continue;
      given_up_ = true;
      return;
    }
  }

  std::atomic<bool> open_ = false;
  std::atomic<bool> given_up_ = false;
};

std::vector<std::byte> BytesOf(std::int64_t count, float value) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(4 * count));
  for (std::int64_t i = 0; i < count; ++i) std::memcpy(&bytes[static_cast<std::size_t>(4 * i)], &value, 4);
  return bytes;
}

// The input is computed on one stream, behind a gate and by a chain of copies; the result is read on another stream.
// Meanwhile the host has made the call and gone on.
absl::Status CheckLateInput(CheckedRank& rank, RankMemory& values, std::int64_t count,
                            const std::function<Work(CUstream_st*)>& call) {
  const CudaRuntime& cuda = rank.cuda();
  const auto bytes = static_cast<std::size_t>(4 * count);
  const int copies = rank.device.is_fake ? 4 : 400;  // some milliseconds of a GPU
  const RankStream producer(rank.device), reader(rank.device);
  const RankMemory input(rank.device, 4 * count), between(rank.device, 4 * count), result(rank.device, 4 * count);
  input.Write(BytesOf(count, static_cast<float>(rank.rank() + 1)));
  values.Write(BytesOf(count, -100.0f));
  Gate gate;
  gate.Hold(cuda, producer.get());
  for (int i = 0; i < copies; ++i) {
    const std::byte* const from = i % 2 == 0 ? input.data() : between.data();
    std::byte* const to = i % 2 == 0 ? between.data() : input.data();
    Require(cuda, cuda.copy_async(to, from, bytes, producer.get()), "copy_async");
  }
  Require(cuda, cuda.copy_async(values.data(), input.data(), bytes, producer.get()), "copy_async");
  Work work = call(producer.get());
  absl::Status waited = work.WaitOnStream(reader.get());
  Require(cuda, cuda.copy_async(result.data(), values.data(), bytes, reader.get()), "copy_async");
  const bool ended_before = work.done();
  const bool host_went_on = gate.Open();
  // Whatever has gone wrong, the streams and the call must be done with the gate and the memory.
  producer.Synchronize();
  reader.Synchronize();
  waited.Update(work.Wait());
  if (!waited.ok()) return waited;
  if (!host_went_on) return absl::DataLossError("the host has waited for the input");
  if (ended_before) return absl::DataLossError("the call has ended before its input was there");
  const auto expected = BytesOf(count, static_cast<float>(rank.size() * (rank.size() + 1)) / 2.0f);
  if (result.Read() != expected) return absl::DataLossError("the reading stream has not waited for the result");
  return absl::OkStatus();
}

absl::Status StreamOrder(CheckedRank& rank) {
  const std::int64_t count = rank.device.is_fake ? 1000 : 1 << 20;
  RankMemory values(rank.device, 4 * count);
  for (const char* name : {"native", "ring"}) {
    const Schedule* const schedule = *FindSchedule(Collective::kAllReduce, name);
    const auto call = [&](CUstream_st* stream) {
      return rank.comm.AllReduce(values.data(), values.data(), count, DType::kF32, ReduceOp::kSum,
                                 {.schedule = schedule, .stream = stream});
    };
    // Ranks meet in the first call, and a kind of call takes its memory.
    if (absl::Status status = call(nullptr).Wait(); !status.ok()) return status;
    if (absl::Status status = CheckLateInput(rank, values, count, call); !status.ok()) {
      return absl::Status(status.code(), absl::StrCat(name, ": ", status.message()));
    }
  }
  const Strategy bytegrad = *ParseStrategy("bytegrad:average=false");
  absl::StatusOr<BoundPlan> bound = rank.comm.Bind(bytegrad, DType::kF32, count, 0, {.out = values.data()});
  if (!bound.ok()) return bound.status();
  if (absl::Status status = bound->Start().Wait(); !status.ok()) return status;
  // Blocks of equal values are exact in every codec's grid.
  const absl::Status status =
      CheckLateInput(rank, values, count, [&](CUstream_st* stream) { return bound->Start({.stream = stream}); });
  return status.ok() ? status : absl::Status(status.code(), absl::StrCat("bytegrad: ", status.message()));
}

// Many calls of both kinds of memory that nobody waits for: they keep their order, and more of them than a stream takes
// at a time.
absl::Status Turns(CheckedRank& rank) {
  constexpr std::int64_t kCount = 501;
  constexpr int kCalls = 40;
  const RankStream stream(rank.device);
  const RankMemory values(rank.device, 4 * kCount);
  values.Write(BytesOf(kCount, 1.0f));
  std::vector<float> host(kCount, 1.0f);
  std::vector<Work> works;
  for (int call = 0; call < kCalls; ++call) {
    works.push_back(rank.comm.AllReduce(values.data(), values.data(), kCount, DType::kF32, ReduceOp::kAvg,
                                        {.stream = stream.get()}));
    if (absl::Status status = works.back().WaitOnStream(stream.get()); !status.ok()) return status;
    if (call % 3 == 0)
      works.push_back(rank.comm.AllReduce(host.data(), host.data(), kCount, DType::kF32, ReduceOp::kMax));
  }
  works.push_back(rank.comm.AllReduce(values.data(), values.data(), kCount, DType::kF32, ReduceOp::kSum));
  for (Work& work : works) {
    if (absl::Status status = work.Wait(); !status.ok()) return status;
  }
  std::vector<std::byte> result = values.Read();
  float first = 0;
  std::memcpy(&first, result.data(), 4);
  // NCCL multiplies by 1/n, which is not exact for all n.
  const auto expected = static_cast<float>(rank.size());
  if (first < expected * 0.9999f || first > expected * 1.0001f || host[0] != 1.0f) {
    return absl::DataLossError(absl::StrCat("after ", kCalls, " averages and a sum of ones: ", first));
  }
  rank.note(absl::StrCat(works.size(), " calls"));
  return absl::OkStatus();
}

// Sums in a CUDA graph: every launch of the graph adds up what is in the memory then.
absl::Status Capture(CheckedRank& rank) {
  constexpr std::int64_t kCount = 100'003;
  const RankStream stream(rank.device);
  const RankMemory values(rank.device, 4 * kCount);
  const StreamCapture& capture = rank.device.capture;
  const auto n = static_cast<float>(rank.size());
  for (const char* name : {"native", "ring"}) {
    const Schedule* const schedule = *FindSchedule(Collective::kAllReduce, name);
    Require(rank.cuda(), capture.begin(stream.get()), "begin the capture");
    absl::Status status;
    for (int call = 0; call < 2; ++call) {
      Work work = rank.comm.AllReduce(values.data(), values.data(), kCount, DType::kF32, ReduceOp::kSum,
                                      {.schedule = schedule, .stream = stream.get()});
      status.Update(work.WaitOnStream(stream.get()));
    }
    void* graph = nullptr;
    const CudaError ended = capture.end(stream.get(), &graph);
    if (!status.ok()) return status;
    Require(rank.cuda(), ended, "end the capture");
    for (const float value : {1.0f, 3.0f}) {
      values.Write(BytesOf(kCount, value));
      Require(rank.cuda(), capture.launch(graph, stream.get()), "launch the graph");
      stream.Synchronize();
      const std::vector<std::byte> result = values.Read();
      for (const std::int64_t at : {std::int64_t{0}, kCount - 1}) {
        float sum = 0;
        std::memcpy(&sum, result.data() + 4 * at, 4);
        if (sum == value * n * n) continue;
        return absl::DataLossError(
            absl::StrCat(name, ": two sums of ", value, " in a graph gave ", sum, ", expected ", value * n * n));
      }
    }
    capture.destroy(graph);
    // A call outside of the graph.
    Work after = rank.comm.AllReduce(values.data(), values.data(), kCount, DType::kF32, ReduceOp::kSum,
                                     {.schedule = schedule, .stream = stream.get()});
    if (absl::Status ended_well = after.Wait(); !ended_well.ok()) return ended_well;
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<RankCheck> StreamChecks() {
  return {{.name = "stream_order",
           .summary = "inputs that are computed late, results that another stream reads, a host that waits for nothing",
           .sizes = {1, 2, 3},
           .timeout = absl::Seconds(60),
           .run = StreamOrder},
          {.name = "turns",
           .summary = "many calls on host and GPU, none of which is waited for",
           .sizes = {2, 3},
           .timeout = absl::Seconds(60),
           .also_staged = true,
           .run = Turns},
          {.name = "capture",
           .summary = "calls in a CUDA graph, which is launched several times",
           .sizes = {1, 2},
           .timeout = absl::Seconds(45),
           .run = Capture}};
}

}  // namespace tutti::gpu
