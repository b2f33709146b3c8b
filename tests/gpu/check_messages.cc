// Messages between ranks on the memory of GPUs: Send, Recv, SendRecv and AllToAllV.
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/gpu/expected_on_gpu.h"
#include "tests/gpu/rank_check.h"
#include "tests/gpu/rank_memory.h"

namespace tutti::gpu {
namespace {

// What `from` sends to `to`: numbers that tell where they come from.
std::vector<std::byte> MessageOf(Rank from, Rank to, std::int64_t count) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(4 * count));
  for (std::int64_t i = 0; i < count; ++i) {
    const auto value = static_cast<float>(1000 * from + 100 * to + i % 97);
    std::memcpy(&bytes[static_cast<std::size_t>(4 * i)], &value, 4);
  }
  return bytes;
}

absl::Status CompareMessage(const RankMemory& arrived, Rank from, Rank to, std::int64_t count) {
  if (arrived.Read() == MessageOf(from, to, count)) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("the message of ", count, " elements of rank ", from, " has other bytes"));
}

// Each rank sends to the next one. On a stream one message follows the other, so not all ranks send first.
absl::Status MessagesGoRound(CheckedRank& rank, std::int64_t count) {
  const int n = rank.size();
  const Rank to = (rank.rank() + 1) % n;
  const Rank from = (rank.rank() + n - 1) % n;
  const RankMemory mine(rank.device, 4 * count), arrived(rank.device, 4 * count);
  mine.Write(MessageOf(rank.rank(), to, count));
  const auto send = [&] { return rank.comm.Send(mine.data(), count, DType::kF32, to); };
  const auto recv = [&] { return rank.comm.Recv(arrived.data(), count, DType::kF32, from); };
  const bool sends_first = rank.rank() % 2 == 0;
  Work one = sends_first ? send() : recv();
  Work two = sends_first ? recv() : send();
  absl::Status status = one.Wait();
  status.Update(two.Wait());
  return status.ok() ? CompareMessage(arrived, from, rank.rank(), count) : status;
}

// All ranks send to all, and to themselves, in one call.
absl::Status AllAtOnce(CheckedRank& rank, std::int64_t count) {
  std::vector<std::unique_ptr<RankMemory>> mine, arrived;
  std::vector<NativeCall> calls;
  for (Rank peer = 0; peer < rank.size(); ++peer) {
    mine.push_back(std::make_unique<RankMemory>(rank.device, 4 * count));
    arrived.push_back(std::make_unique<RankMemory>(rank.device, 4 * count));
    mine.back()->Write(MessageOf(rank.rank(), peer, count));
    calls.push_back({.collective = Collective::kSend, .count = count, .root = peer, .src = mine.back()->data()});
    calls.push_back({.collective = Collective::kRecv, .count = count, .root = peer, .dst = arrived.back()->data()});
  }
  absl::Status status = rank.comm.SendRecv(calls).Wait();
  for (Rank peer = 0; peer < rank.size() && status.ok(); ++peer) {
    status = CompareMessage(*arrived[static_cast<std::size_t>(peer)], peer, rank.rank(), count);
  }
  return status;
}

absl::Status Messages(CheckedRank& rank) {
  for (const std::int64_t count : {1, 7, 1000, rank.device.is_fake ? 5003 : (1 << 20) + 3}) {
    if (absl::Status status = MessagesGoRound(rank, count); !status.ok()) return status;
    if (absl::Status status = AllAtOnce(rank, count); !status.ok()) return status;
    for (const DType dtype : {DType::kU8, DType::kBF16, DType::kF32, DType::kC128}) {
      const CollectiveSpec spec = {.collective = Collective::kAllToAllV, .dtype = dtype};
      if (absl::Status status = CheckCall(rank, nullptr, spec, count); !status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<RankCheck> MessageChecks() {
  return {{.name = "messages",
           .summary = "Send, Recv, SendRecv and AllToAllV",
           .sizes = {2, 3},
           .timeout = absl::Seconds(60),
           .also_staged = true,
           .run = Messages}};
}

}  // namespace tutti::gpu
