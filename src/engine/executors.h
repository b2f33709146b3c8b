// The executor of a rank with a GPU: calls on the memory of the host and of the GPU, each by its own executor.
#ifndef TUTTI_ENGINE_EXECUTORS_H_
#define TUTTI_ENGINE_EXECUTORS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/executor.h"
#include "engine/run_lists.h"

namespace tutti {

// Programs with a Program::stream_order go to `on_stream`, all others to `on_host`.
class Executors final : public Executor {
 public:
  Executors(std::unique_ptr<Executor> on_host, std::unique_ptr<Executor> on_stream)
      : on_host_(std::move(on_host)), on_stream_(std::move(on_stream)) {}

  void BeginThread() override {
    on_host_->BeginThread();
    on_stream_->BeginThread();
  }
  absl::Status MakeRunnable(const Program& program) const override { return Of(program).MakeRunnable(program); }
  std::unique_ptr<Run> NewRun(Call& call, Channel& channel, const Program& program, void* scratch) override {
    return Of(program).NewRun(call, channel, program, scratch);
  }
  void Add(Run& run) override;
  bool HasPending(const Channel& channel) const override {
    return HasRunOf(channel, waiting_) || on_host_->HasPending(channel) || on_stream_->HasPending(channel);
  }
  bool RunAtOnce(Run& run) override {
    const bool ended = Of(run.program).RunAtOnce(run);
    ListActive();
    return ended;
  }
  Polled Poll() override;
  const absl::Status& error() const override { return failed_->error(); }
  Channel& failed_channel() const override { return failed_->failed_channel(); }
  std::vector<Rank> MessagePeers(const Channel& channel) const override;
  void Abandon(Channel& channel, const absl::Status& cause) override { on_stream_->Abandon(channel, cause); }
  bool HasLetGo(const Channel& channel) const override { return on_stream_->HasLetGo(channel); }
  void End(Channel& channel, const absl::Status& cause) override;

  bool Uses(const Channel& channel) const override {
    return HasRunOf(channel, waiting_) || on_host_->Uses(channel) || on_stream_->Uses(channel);
  }
  bool idle() const override { return waiting_.empty() && on_host_->idle() && on_stream_->idle(); }
  bool needs_driver() const override {
    return !waiting_.empty() || on_host_->needs_driver() || on_stream_->needs_driver();
  }
  bool waits_for_messages() const override {
    return on_host_->waits_for_messages() || on_stream_->waits_for_messages();
  }
  bool polls_device() const override { return on_stream_->polls_device(); }
  bool waits_for_signals() const override { return on_host_->waits_for_signals() || on_stream_->waits_for_signals(); }
  bool waits_for_completions() const override { return on_host_->waits_for_completions(); }
  bool all_in_background() const override { return on_host_->all_in_background() && on_stream_->all_in_background(); }
  absl::Span<Run* const> active() const override { return active_; }

  std::int64_t wire_bytes() const override { return on_host_->wire_bytes() + on_stream_->wire_bytes(); }
  std::int64_t staged_bytes() const override { return on_host_->staged_bytes(); }
  std::int64_t calls() const override { return on_host_->calls() + on_stream_->calls(); }

 private:
  Executor& Of(const Program& program) const { return program.stream_order == nullptr ? *on_host_ : *on_stream_; }
  // The calls of a channel get their places in the order in which they were submitted, on the host and on the device: a
  // run waits here while an earlier one of its channel waits for its place in the other executor.
  bool PassOn();
  void ListActive();

  const std::unique_ptr<Executor> on_host_;
  const std::unique_ptr<Executor> on_stream_;
  const Executor* failed_ = nullptr;
  std::vector<Run*> waiting_;  // in the order of submission
  std::vector<Run*> active_;   // of both, by their places in the order of calls
};

}  // namespace tutti

#endif  // TUTTI_ENGINE_EXECUTORS_H_
