#include "engine/operation.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "base/futex.h"
#include "engine/channel.h"
#include "engine/control_block.h"
#include "engine/engine.h"
#include "engine/operation_pool.h"
#include "memory/arena.h"
#include "tutti/work.h"

namespace tutti {

absl::Status StickyStatus::Get() const {
  const MutexLock lock(mutex_);
  return status_;
}

bool StickyStatus::Set(const absl::Status& error) {
  const MutexLock lock(mutex_);
  if (!status_.ok()) return false;
  status_ = error;
  failed_.store(true, std::memory_order_seq_cst);
  return true;
}

void Milestone::Pass() {
  runs_.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) != 0) FutexWakeAll(runs_);
}

void Milestone::Sleep(std::uint32_t run, absl::Duration most) {
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  const std::uint32_t seen = runs_.load(std::memory_order_seq_cst);
  if (!passed(run)) FutexWait(runs_, seen, most);
  sleepers_.fetch_sub(1, std::memory_order_seq_cst);
}

Operation::Operation(std::shared_ptr<const Program> program, Channel& its_channel)
    : channel(its_channel),
      engine(its_channel.engine()),
      sticky(its_channel.engine().sticky()),
      program_(std::move(program)) {
  const std::size_t num_steps = program_->instructions.size();
  dependencies_left.resize(num_steps);
  ready.reserve(num_steps);
  waiting.reserve(program_->num_waits);
  bases.resize(kSpaces + kPeerSpaces * static_cast<std::size_t>(channel.size()));
  peer_known.resize(channel.size());
  std::size_t most_dsts = 0;
  std::size_t most_srcs = 0;
  for (StepId id = 0; id < num_steps; ++id) {
    const Instruction& instruction = program_->instructions[id];
    most_dsts = std::max<std::size_t>(most_dsts, instruction.num_dsts);
    most_srcs = std::max<std::size_t>(most_srcs, instruction.num_srcs);
    if (instruction.kind != StepKind::kSend && instruction.kind != StepKind::kRecv) continue;
    completions.resize(num_steps);
    completions[id].operation = this;
    completions[id].step = id;
    completions[id].done = &Engine::OnMessage;
  }
  dsts.resize(most_dsts);
  srcs.resize(most_srcs);
}

absl::StatusOr<Operation*> Operation::Create(std::shared_ptr<const Program> program, Channel& channel, void* scratch) {
  std::unique_ptr<Operation> operation(new Operation(std::move(program), channel));
  const Plan& plan = operation->program_->plan;
  const bool fits_lane = operation->program_->uses_lane && plan.scratch_bytes <= kLaneScratchBytes;
  if (!operation->program_->uses_lane) operation->callers_scratch = static_cast<std::byte*>(scratch);
  if (plan.scratch_bytes > 0 && !fits_lane && operation->callers_scratch == nullptr) {
    absl::StatusOr<Buffer> own = channel.arena().Allocate(plan.scratch_bytes);
    if (!own.ok()) return own.status();
    operation->scratch = *std::move(own);
  }
  return operation.release();
}

absl::Status Operation::SetBuffers(const void* in, void* out, void* state) {
  const Plan& plan = program_->plan;
  user_in_ = in;
  user_out_ = out;
  // kIn is never written: the cast only serves the common table of bases.
  bases[static_cast<std::size_t>(Space::kIn)] = static_cast<std::byte*>(const_cast<void*>(in));
  bases[static_cast<std::size_t>(Space::kOut)] = static_cast<std::byte*>(out);
  bases[static_cast<std::size_t>(Space::kState)] = static_cast<std::byte*>(state);
  if (!program_->shares_io) return absl::OkStatus();
  const auto stage = [&](const void* memory, std::int64_t bytes, Buffer& staging, Space space) -> absl::Status {
    if (bytes == 0 || channel.arena().Contains(memory)) {
      staging = Buffer();
      return absl::OkStatus();
    }
    if (staging.data() == nullptr) {
      absl::StatusOr<Buffer> buffer = channel.arena().Allocate(bytes);
      if (!buffer.ok()) return buffer.status();
      staging = *std::move(buffer);
    }
    bases[static_cast<std::size_t>(space)] = staging.data();
    return absl::OkStatus();
  };
  if (absl::Status status = stage(in, plan.in_bytes, staging_in, Space::kIn); !status.ok()) return status;
  return stage(out, plan.out_bytes, staging_out, Space::kOut);
}

void Operation::CopyIn() {
  const Plan& plan = program_->plan;
  if (staging_in.data() != nullptr) std::memcpy(staging_in.data(), user_in_, static_cast<std::size_t>(plan.in_bytes));
  // Bytes of the output that the call does not write must come back as they were.
  if (staging_out.data() != nullptr) {
    std::memcpy(staging_out.data(), user_out_, static_cast<std::size_t>(plan.out_bytes));
  }
}

void Operation::CopyOut() {
  if (staging_out.data() == nullptr) return;
  std::memcpy(user_out_, staging_out.data(), static_cast<std::size_t>(program_->plan.out_bytes));
}

void Operation::PrepareRun() {
  std::copy(program_->dependency_counts.begin(), program_->dependency_counts.end(), dependencies_left.begin());
  steps_left = static_cast<std::uint32_t>(dependencies_left.size());
  messages_left = 0;
  signals = 0;
  output_steps_left_ = program_->output_steps;
  waiting.clear();
  peer_known.assign(peer_known.size(), false);
  // A stack: the first step of the plan is taken first.
  ready.assign(program_->initially_ready.rbegin(), program_->initially_ready.rend());
  bases[static_cast<std::size_t>(Space::kScratch)] = channel.ScratchOf(*this);
}

void Operation::Release() {
  if (references_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  if (pool == nullptr) {
    delete this;
    return;
  }
  references_.store(1, std::memory_order_relaxed);
  const std::shared_ptr<OperationPool> home = std::move(pool);
  home->Return(this);
}

void Operation::Finish() {
  if (!sticky->ok()) failed_.store(true, std::memory_order_relaxed);
  // A run that fails does not come to its output by itself.
  if (program_->output_steps > 0 && output_.runs() == end.runs()) output_.Pass();
  admitted = running = false;
  deadline_ns = 0;
  end_ns = timed ? MonotonicNanos() : 0;
  end.Pass();
  if (has_callback_.load(std::memory_order_seq_cst)) Callback();
  Release();
}

absl::Status Operation::result() const {
  return failed_.load(std::memory_order_relaxed) ? sticky->Get() : absl::OkStatus();
}

void Operation::OnDone(std::uint32_t run, std::function<void(const absl::Status&)> callback) {
  {
    const MutexLock lock(callback_mutex_);
    callback_ = std::move(callback);
  }
  has_callback_.store(true, std::memory_order_seq_cst);
  if (done(run)) Callback();
}

void Operation::Callback() {
  std::function<void(const absl::Status&)> callback;
  {
    const MutexLock lock(callback_mutex_);
    callback.swap(callback_);
    has_callback_.store(false, std::memory_order_relaxed);
  }
  if (callback) callback(result());
}

Work::~Work() {
  if (operation_ != nullptr) operation_->Release();
}

std::int64_t Work::wire_bytes() const { return operation_ != nullptr ? operation_->program().wire_bytes : 0; }

std::int64_t Work::end_nanos() const { return operation_ != nullptr && done() ? operation_->end_ns : 0; }

bool Work::done() const { return operation_ == nullptr || operation_->done(run_); }

absl::Status Work::Wait() {
  if (operation_ == nullptr) return status_;
  if (!operation_->done(run_)) operation_->engine.Wait(operation_->end, run_, operation_->background);
  return operation_->result();
}

absl::Status Work::WaitForOutput() {
  if (operation_ == nullptr) return status_;
  Milestone& output = operation_->output();
  if (!output.passed(run_)) operation_->engine.Wait(output, run_, operation_->background);
  return operation_->result();
}

void Work::OnDone(std::function<void(const absl::Status&)> callback) {
  if (operation_ == nullptr) {
    callback(status_);
  } else {
    operation_->OnDone(run_, std::move(callback));
  }
}

}  // namespace tutti
