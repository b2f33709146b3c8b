// The calls that a benchmark times, as Tutti makes them, or raw NCCL beside Tutti.
#ifndef TUTTI_BINDINGS_CLI_BENCH_CALLER_H_
#define TUTTI_BINDINGS_CLI_BENCH_CALLER_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "bindings/cli/bench/nccl/raw_nccl.h"
#include "bindings/cli/traffic.h"
#include "tutti/communicator.h"

namespace tutti::cli {

// Calls on the memory of a GPU are timed by windows of so many: the host makes the calls of a window, then waits for
// them.
inline constexpr int kCallsOfAWindow = 16;

// The calls of one size. What a caller is made of outlives it.
class BenchCaller {
 public:
  virtual ~BenchCaller() = default;

  // "tutti" or "nccl".
  virtual absl::string_view library() const = 0;
  // The codec that encodes what travels, so that results are not exact; empty: none does.
  virtual std::string codec() const { return ""; }
  // How many calls may be under way at a time.
  virtual int most_calls() const { return kCallsOfAWindow; }
  // Makes one call and does not wait for its end. On the memory of a GPU the call has its place on a stream afterwards.
  virtual absl::Status Enqueue(const std::byte* in, std::byte* out) = 0;
  // Waits for the ends of all calls that were made.
  virtual absl::Status Wait() = 0;
};

class TuttiCaller final : public BenchCaller {
 public:
  TuttiCaller(Communicator& communicator, const Traffic& traffic, const CallOptions& options, MemoryKind kind)
      : communicator_(communicator), traffic_(traffic), options_(options), kind_(kind) {}

  absl::string_view library() const override { return "tutti"; }
  absl::Status Enqueue(const std::byte* in, std::byte* out) override;
  absl::Status Wait() override;

 private:
  Communicator& communicator_;
  const Traffic& traffic_;
  const CallOptions& options_;
  const MemoryKind kind_;
  std::vector<Work> works_;  // that have not been waited for
};

// The sum in messages of a codec: a plan that is bound to its memory, and runs once at a time.
class CodecCaller final : public BenchCaller {
 public:
  CodecCaller(BoundPlan plan, std::string codec, MemoryKind kind)
      : plan_(std::move(plan)), codec_(std::move(codec)), kind_(kind) {}

  absl::string_view library() const override { return "tutti"; }
  std::string codec() const override { return codec_; }
  int most_calls() const override { return 1; }
  absl::Status Enqueue(const std::byte* in, std::byte* out) override;
  absl::Status Wait() override { return work_.Wait(); }

 private:
  BoundPlan plan_;
  const std::string codec_;
  const MemoryKind kind_;
  Work work_;  // of the last call
  std::uint64_t draw_ = 0;
};

class RawNcclCaller final : public BenchCaller {
 public:
  RawNcclCaller(RawNccl& nccl, const Traffic& traffic, double factor, absl::Duration timeout)
      : nccl_(nccl), traffic_(traffic), factor_(factor), timeout_(timeout) {}

  absl::string_view library() const override { return "nccl"; }
  absl::Status Enqueue(const std::byte* in, std::byte* out) override;
  absl::Status Wait() override { return nccl_.Wait(timeout_); }

 private:
  RawNccl& nccl_;
  const Traffic& traffic_;
  const double factor_;
  const absl::Duration timeout_;
};

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_BENCH_CALLER_H_
