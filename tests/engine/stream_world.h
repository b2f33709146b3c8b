// Ranks of one process, each a thread with an engine and a channel of its own, whose calls run on streams of the fake
// CUDA, or on the host for comparison.
#ifndef TUTTI_TESTS_ENGINE_STREAM_WORLD_H_
#define TUTTI_TESTS_ENGINE_STREAM_WORLD_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "engine/call.h"
#include "engine/channel.h"
#include "engine/engine.h"
#include "engine/host_executor.h"
#include "engine/lent_memory.h"
#include "engine/stream_executor.h"
#include "memory/arena.h"
#include "plan/meetings.h"
#include "tests/harness/fake_cuda.h"
#include "tests/harness/fake_device.h"
#include "tests/harness/fake_nccl.h"
#include "transports/nccl/transport.h"
#include "tutti/communicator.h"
#include "tutti/staged_transport.h"

namespace tutti {

struct StreamRank {
  Rank rank = 0;
  std::shared_ptr<Transport> transport;
  std::shared_ptr<Arena> arena;
  Buffer presence_memory;
  Presence* presence = nullptr;
  std::shared_ptr<LentMemory> lent = std::make_shared<LentMemory>();
  std::shared_ptr<ControlBlocks> blocks;
  ControlBlock* control = nullptr;
  std::shared_ptr<Engine> engine;
  std::unique_ptr<Channel> channel;

  // Runs `program` once; the Work keeps the call.
  Work Start(const std::shared_ptr<const Program>& program, const PlanBuffers& buffers,
             const CallOptions& options = {}) const {
    Call* const call = Call::Create(program, *channel);
    if (absl::Status status = call->SetBuffers(buffers.in, buffers.out, buffers.state); !status.ok()) {
      call->Release();
      return Work(status);
    }
    const std::uint32_t run = call->Submit(options);
    return Work(call, run);
  }
};

class StreamWorld {
 public:
  enum class On : std::uint8_t { kStreams, kStaged, kHost };

  // Rank r uses device r; with kStaged, where messages go through the host, all ranks use device 0. `timeout`: of the
  // engines. `faults`: of the NCCL communicator of all ranks.
  explicit StreamWorld(int size, On on = On::kStreams, absl::Duration timeout = absl::Seconds(60),
                       const std::vector<FakeFault>& faults = {})
      : ranks_(static_cast<std::size_t>(size)), on_(on), id_(nccl::NewUniqueId(FakeNccl::Table()).value()) {
    for (const FakeFault& fault : faults) FakeNccl::Inject(id_, fault);
    const auto hub = MakeInprocHub(size);
    std::vector<std::string> addresses;
    for (StreamRank& rank : ranks_) {
      rank.transport = MakeInprocTransport(hub, {.region_bytes = 64 << 20}).value();
      addresses.push_back(rank.transport->Address().value());
    }
    for (Rank r = 0; r < size; ++r) {
      StreamRank& rank = At(r);
      rank.rank = r;
      EXPECT_EQ(rank.transport->Connect(r, addresses, absl::InfiniteFuture()), absl::OkStatus());
      rank.arena = std::make_shared<Arena>(rank.transport, r);
      rank.presence_memory = rank.arena->Allocate(sizeof(Presence)).value();
      rank.presence = new (rank.presence_memory.data()) Presence;
      rank.blocks = std::make_shared<ControlBlocks>(rank.arena);
      rank.control = rank.blocks->Open().value();
    }
    for (StreamRank& rank : ranks_) Start(rank, timeout);
  }

  ~StreamWorld() {
    OnEveryRank([](StreamRank& rank) {
      if (rank.channel == nullptr) return;
      rank.engine->Close(*rank.channel);
      rank.channel.reset();
    });
    for (StreamRank& rank : ranks_) rank.engine->Stop();
  }

  int size() const { return static_cast<int>(ranks_.size()); }
  int DeviceOf(Rank rank) const { return on_ == On::kStaged ? 0 : rank; }
  StreamRank& At(Rank rank) { return ranks_[static_cast<std::size_t>(rank)]; }

  void OnEveryRank(const std::function<void(StreamRank&)>& body) {
    std::vector<std::thread> threads;
    for (StreamRank& rank : ranks_) threads.emplace_back([&] { body(rank); });
    for (std::thread& thread : threads) thread.join();
  }

  // The program of each rank for the plans of all ranks, made runnable. Groups that the plans name get native
  // transports.
  std::vector<std::shared_ptr<const Program>> Programs(const std::vector<Plan>& plans) {
    std::vector<std::shared_ptr<const Program>> programs;
    if (on_ == On::kHost) {
      for (const Plan& plan : plans) programs.push_back(Compile(plan));
      return programs;
    }
    absl::StatusOr<std::vector<StreamOrder>> orders = StreamOrdersOf(plans);
    EXPECT_TRUE(orders.ok()) << orders.status();
    for (const std::vector<Rank>& group : GroupsOf(plans)) MakeGroup(group);
    for (std::size_t r = 0; r < plans.size(); ++r) {
      programs.push_back(CompileForStream(plans[r], std::move((*orders)[r])));
      EXPECT_EQ(ranks_[r].engine->MakeRunnable(*programs.back()), absl::OkStatus());
    }
    return programs;
  }

 private:
  void MakeGroup(const std::vector<Rank>& group) {
    const nccl::UniqueId id = nccl::NewUniqueId(FakeNccl::Table()).value();
    OnEveryRank([&](StreamRank& rank) {
      const auto place = std::find(group.begin(), group.end(), rank.rank);
      if (place == group.end() || rank.channel->on_device()->NativeOf(group) != nullptr) return;
      auto native = nccl::Connect({.nccl = &FakeNccl::Table(),
                                   .cuda = &FakeCuda::Table(),
                                   .device = rank.rank,
                                   .rank = static_cast<Rank>(place - group.begin()),
                                   .size = static_cast<int>(group.size()),
                                   .id = id},
                                  absl::Now() + absl::Seconds(60));
      ASSERT_TRUE(native.ok()) << native.status();
      rank.channel->on_device()->Add(group, *std::move(native));
    });
  }

  void Start(StreamRank& rank, absl::Duration timeout) {
    EngineOptions options;
    options.rank = rank.rank;
    options.timeout = timeout;
    for (const StreamRank& peer : ranks_) options.presence.push_back(peer.presence);
    const StreamDevice device = FakeDevice(DeviceOf(rank.rank));
    std::unique_ptr<Executor> executor;
    if (on_ == On::kHost) {
      executor = std::make_unique<HostExecutor>(*rank.transport, *rank.presence, /*may_spin=*/false);
    } else {
      executor = std::make_unique<StreamExecutor>(device);
    }
    rank.engine = std::make_shared<Engine>(rank.transport, rank.arena, std::move(executor), std::move(options));
    std::vector<Channel::Peer> peers;
    for (const StreamRank& peer : ranks_) {
      Endpoint& endpoint = rank.transport->endpoint(peer.rank);
      peers.push_back({.world_rank = peer.rank,
                       .channel = 7,
                       .endpoint = &endpoint,
                       .control = peer.control,
                       .region = &peer == &rank ? rank.transport->region() : endpoint.region()});
    }
    rank.channel =
        std::make_unique<Channel>(*rank.engine, rank.arena, rank.lent, rank.blocks, rank.rank, std::move(peers));
    if (on_ == On::kHost) return;
    if (on_ == On::kStaged) {
      StagedOptions staged = {
          .cuda = device.cuda, .device = device.index, .transport = rank.transport, .rank = rank.rank};
      for (Rank peer = 0; peer < size(); ++peer) staged.peers.push_back({.world_rank = peer, .number = 8});
      rank.channel->SetOnDevice(ChannelOnDevice::Make(device, MakeStagedTransport(std::move(staged)).value()).value());
      return;
    }
    connecting_.emplace_back([this, &rank, device] {
      auto native = nccl::Connect({.nccl = &FakeNccl::Table(),
                                   .cuda = device.cuda,
                                   .device = device.index,
                                   .rank = rank.rank,
                                   .size = size(),
                                   .id = id_},
                                  absl::Now() + absl::Seconds(60));
      ASSERT_TRUE(native.ok()) << native.status();
      rank.channel->SetOnDevice(ChannelOnDevice::Make(device, *std::move(native)).value());
    });
    if (rank.rank + 1 < size()) return;
    for (std::thread& thread : connecting_) thread.join();
  }

  std::vector<StreamRank> ranks_;
  const On on_;
  const nccl::UniqueId id_;
  std::vector<std::thread> connecting_;
};

}  // namespace tutti

#endif  // TUTTI_TESTS_ENGINE_STREAM_WORLD_H_
