#include "comm/link_measurement.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <tuple>
#include <vector>

#include "base/clock.h"
#include "tutti/selector.h"

namespace tutti {
namespace {

constexpr std::int64_t kShort = 1;
constexpr std::int64_t kLong = 1 << 20;
constexpr int kShortTrips = 50;
constexpr int kLongTrips = 8;

struct Pair {
  Rank first = kSelf;  // kSelf: the world has no such two ranks
  Rank second = kSelf;
};

// The first two ranks that share a node, or that do not.
Pair FindPair(const std::vector<int>& nodes, int size, bool share) {
  for (Rank a = 0; a < size; ++a) {
    for (Rank b = a + 1; b < size; ++b) {
      if ((nodes.empty() || nodes[a] == nodes[b]) == share) return {a, b};
    }
  }
  return {};
}

// Nanoseconds of the fastest of `trips` messages of `bytes` there and back; the first few trips, kWarmUps, do not
// count.
absl::StatusOr<std::int64_t> FastestTrip(Communicator& world, const Pair& pair, std::byte* memory, std::int64_t bytes,
                                         int trips) {
  constexpr int kWarmUps = 3;
  const bool starts = world.rank() == pair.first;
  const Rank peer = starts ? pair.second : pair.first;
  const CallOptions options{.caller_drives = true};
  std::int64_t fastest = std::numeric_limits<std::int64_t>::max();
  for (int trip = 0; trip < kWarmUps + trips; ++trip) {
    const std::int64_t start = MonotonicNanos();
    for (const bool sends : {starts, !starts}) {
      Work message = sends ? world.Send(memory, bytes, DType::kU8, peer, options)
                           : world.Recv(memory, bytes, DType::kU8, peer, options);
      if (absl::Status status = message.Wait(); !status.ok()) return status;
    }
    if (trip >= kWarmUps) fastest = std::min(fastest, MonotonicNanos() - start);
  }
  return fastest;
}

// The seconds that a message of `bytes` is predicted to take from the first to the second of the pair.
double Predicted(const LinkModel& link, const CostModel& model, std::int64_t bytes) {
  return model.step_s + SendingSeconds(link, bytes) + link.latency_s + TransferSeconds(link, bytes) +
         ReceivingSeconds(link, bytes);
}

// Multiplies the link's costs per message by one factor and its costs per byte by another, so that predictions match
// the measured times of a short and of a long message.
LinkModel Fit(const LinkModel& link, const CostModel& model, double short_s, double long_s) {
  const double fixed = Predicted(link, model, 0) - model.step_s;
  const double bytes = Predicted(link, model, kLong) - Predicted(link, model, 0);
  const double slower = fixed > 0 ? std::max(short_s - model.step_s, 0.01 * fixed) / fixed : 1;
  const double narrower = bytes > 0 ? std::max(long_s - short_s, 0.01 * bytes) / bytes : 1;
  return {.latency_s = link.latency_s * slower,
          .bytes_per_s = link.bytes_per_s / narrower,
          .message_s = link.message_s * slower,
          .copy_bytes_per_s = link.copy_bytes_per_s / narrower,
          .announced_bytes = link.announced_bytes,
          .announced_bytes_per_s = link.announced_bytes_per_s / narrower};
}

}  // namespace

absl::StatusOr<CostModel> MeasureLinks(Communicator& world, const CostModel& model) {
  absl::StatusOr<Buffer> memory = world.Allocate(kLong);
  if (!memory.ok()) return memory.status();
  std::fill_n(memory->data(), kLong, std::byte{1});  // pages that nobody has written are read faster than others
  CostModel measured = model;
  for (const bool share : {true, false}) {
    const Pair pair = FindPair(world.plan_options().nodes, world.size(), share);
    if (pair.first == kSelf) continue;
    std::vector<std::int64_t> nanos = {0, 0};  // the fastest round trip of a short and of a long message, at pair.first
    if (world.rank() == pair.first || world.rank() == pair.second) {
      for (const auto& [bytes, trips, at] :
           {std::tuple(kShort, kShortTrips, std::size_t{0}), std::tuple(kLong, kLongTrips, std::size_t{1})}) {
        const absl::StatusOr<std::int64_t> fastest = FastestTrip(world, pair, memory->data(), bytes, trips);
        if (!fastest.ok()) return fastest.status();
        if (world.rank() == pair.first) nanos[at] = *fastest;
      }
    }
    // The call names its schedule: a choice by the model before the measurement must not be remembered.
    const absl::StatusOr<const Schedule*> binomial = FindSchedule(Collective::kBroadcast, "binomial");
    if (!binomial.ok()) return binomial.status();
    const absl::Status told =
        world.Broadcast(nanos.data(), nanos.data(), std::ssize(nanos), DType::kI64, pair.first, {.schedule = *binomial})
            .Wait();
    if (!told.ok()) return told;
    LinkModel& link = share ? measured.within_node : measured.between_nodes;
    link = Fit(link, model, static_cast<double>(nanos[0]) * 0.5e-9, static_cast<double>(nanos[1]) * 0.5e-9);
  }
  return measured;
}

}  // namespace tutti
