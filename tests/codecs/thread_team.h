// A table of device kernels whose blocks are each worked on by a team of several threads of the host: the functions of
// blocks divide the work as they do on a GPU, and ThreadSanitizer sees accesses without a Sync between them.
#ifndef TESTS_CODECS_THREAD_TEAM_H_
#define TESTS_CODECS_THREAD_TEAM_H_

#include <array>
#include <atomic>
#include <barrier>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "kernels/launch_adam-inl.h"
#include "kernels/launch_convert-inl.h"
#include "kernels/launch_messages-inl.h"
#include "kernels/launch_reduce-inl.h"

namespace tutti {

inline constexpr int kTeamSize = 3;

// What the threads of a team share.
struct TeamBoard {
  std::barrier<> barrier{kTeamSize};
  std::array<std::array<std::byte, 32>, kTeamSize> values;
};

// src/kernels/team.h says what the functions do.
class ThreadTeam {
 public:
  ThreadTeam(TeamBoard& board, int rank) : board_(&board), rank_(rank) {}

  int rank() const { return rank_; }
  static constexpr int size() { return kTeamSize; }
  void Sync() const { board_->barrier.arrive_and_wait(); }
  bool All(bool value) const {
    const auto values = Exchange(value);
    return values[0] && values[1] && values[2];
  }
  bool Any(bool value) const {
    const auto values = Exchange(value);
    return values[0] || values[1] || values[2];
  }
  template <class T>
  T Combine(T value) const {
    const auto values = Exchange(value);
    for (int rank = 0; rank < kTeamSize; ++rank) {
      if (rank != rank_) value.Add(values[rank]);
    }
    return value;
  }
  std::uint64_t SumBefore(std::uint64_t value, std::uint64_t& total) const {
    const auto values = Exchange(value);
    std::uint64_t before = 0;
    total = 0;
    for (int rank = 0; rank < kTeamSize; ++rank) {
      if (rank == rank_) before = total;
      total += values[rank];
    }
    return before;
  }
  void Increment(std::uint64_t& counter) const { ++std::atomic_ref<std::uint64_t>(counter); }

 private:
  template <class T>
  std::array<T, kTeamSize> Exchange(T value) const {
    static_assert(sizeof(T) <= 32);
    Sync();
    std::memcpy(board_->values[rank_].data(), &value, sizeof(value));
    Sync();
    std::array<T, kTeamSize> values;
    for (int rank = 0; rank < kTeamSize; ++rank) std::memcpy(&values[rank], board_->values[rank].data(), sizeof(T));
    return values;
  }

  TeamBoard* board_;
  int rank_;
};

class ThreadTeamLauncher {
 public:
  explicit ThreadTeamLauncher(kernels::Stream /*stream*/) {}

  template <class Octets>
  absl::Status EnqueueOctets(const Octets& octets, std::int64_t count) const {
    RunThreads([&](int rank) { kernels::RunOctets(octets, count, rank, kTeamSize); });
    return absl::OkStatus();
  }

  template <class Coder, class Runner, class Batch>
  absl::Status EnqueueUnits(const Batch& batch) const {
    TeamBoard board;
    typename Coder::Scratch scratch;
    const std::int64_t units = batch.ends[batch.num_jobs - 1];
    RunThreads([&](int rank) {
      for (std::int64_t unit = 0; unit < units; ++unit) {
        kernels::RunUnit<Coder, Runner>(ThreadTeam(board, rank), scratch, batch, unit);
      }
    });
    return absl::OkStatus();
  }

 private:
  template <class Run>
  static void RunThreads(const Run& run) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kTeamSize; ++rank) threads.emplace_back(run, rank);
    for (std::thread& thread : threads) thread.join();
  }
};

inline const kernels::DeviceKernels& ThreadTeamKernels() { return kernels::kKernelsOf<ThreadTeamLauncher>; }

}  // namespace tutti

#endif  // TESTS_CODECS_THREAD_TEAM_H_
