#include "comm/link_fit.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace tutti {
namespace {

constexpr std::int64_t kLong = 1 << 20;

// The nanoseconds that a message is predicted to take.
double Predicted(const LinkModel& link, std::int64_t bytes) {
  return 1e9 *
         (SendingSeconds(link, bytes) + link.latency_s + TransferSeconds(link, bytes) + ReceivingSeconds(link, bytes));
}

void ExpectPredictsWhatWasMeasured(const LinkModel& link, const LinkNanos& nanos, double step_s) {
  EXPECT_NEAR(Predicted(link, 0), static_cast<double>(nanos.trip) / 2 - 1e9 * step_s, 1);
  const double of_bytes = static_cast<double>(nanos.exchange);
  EXPECT_NEAR(Predicted(link, nanos.bytes) - Predicted(link, 0), of_bytes, of_bytes * 1e-6);
}

TEST(LinkFitTest, ASlowNetworkIsSlowOnTheWay) {
  const LinkModel before = DefaultCostModel().between_nodes;
  const LinkNanos nanos{.trip = 80'000, .exchange = 8 * kLong, .bytes = kLong};  // 1 Gb/s
  const LinkModel after = FitLink(before, 1e-6, nanos, /*between_nodes=*/true);
  ExpectPredictsWhatWasMeasured(after, nanos, 1e-6);
  EXPECT_EQ(after.message_s, before.message_s);
  EXPECT_EQ(after.copy_bytes_per_s, before.copy_bytes_per_s);
}

// A few bytes to and from three peers took 10 µs of each end's processor for the second and the third one.
TEST(LinkFitTest, MessagesAtOnceTellWhatProcessorsSpend) {
  const LinkModel before = DefaultCostModel().between_nodes;
  LinkNanos nanos{.trip = 80'000, .exchange = 8 * kLong, .bytes = kLong, .crowd = 80'000, .peers = 3};
  const LinkModel after = FitLink(before, 0, nanos, /*between_nodes=*/true);
  ExpectPredictsWhatWasMeasured(after, nanos, 0);
  EXPECT_NEAR(after.message_s, 10e-6, 1e-9);
  EXPECT_NEAR(after.latency_s, 20e-6, 1e-9);
  // Processors are no faster than the model's, and take no longer than the whole message.
  nanos.crowd = 40'000;
  EXPECT_EQ(FitLink(before, 0, nanos, true).message_s, before.message_s);
  nanos.crowd = 10'000'000;
  EXPECT_NEAR(FitLink(before, 0, nanos, true).message_s, 20e-6, 1e-6);
  ExpectPredictsWhatWasMeasured(FitLink(before, 0, nanos, true), nanos, 0);
  // One peer tells nothing.
  nanos.peers = 1;
  EXPECT_EQ(FitLink(before, 0, nanos, true).message_s, before.message_s);
}

// Two ranks alone take 40 µs for a message, and three messages to and from each of four ranks take 240 µs, not 120.
TEST(LinkFitTest, RanksThatShareProcessorsStandInLineForThem) {
  const LinkModel before = DefaultCostModel().between_nodes;
  LinkNanos nanos{.trip = 80'000, .exchange = 8 * kLong, .bytes = kLong, .crowd = 240'000, .messages = 3, .peers = 3};
  // On hosts with processors of their own, one of which is further away.
  EXPECT_NEAR(FitLink(before, 0, nanos, /*between_nodes=*/true).message_s, 20e-6, 1e-6);
  nanos.in_line = 100'000;
  const LinkModel after = FitLink(before, 0, nanos, /*between_nodes=*/true);
  EXPECT_NEAR(after.message_s, 40e-6, 1e-9);
  EXPECT_NEAR(Predicted(after, nanos.bytes) - Predicted(after, 0), static_cast<double>(nanos.exchange), 10);
  // A rank that was stopped meanwhile does not make every message take seconds.
  nanos.crowd = nanos.in_line = 10'000'000'000;
  EXPECT_NEAR(FitLink(before, 0, nanos, true).message_s, 80e-6, 1e-9);
}

TEST(LinkFitTest, AFasterNetworkHasFasterEnds) {
  const LinkModel before = DefaultCostModel().between_nodes;
  const LinkNanos nanos{.trip = 2'000, .exchange = kLong / 10, .bytes = kLong};
  const LinkModel after = FitLink(before, 0, nanos, /*between_nodes=*/true);
  ExpectPredictsWhatWasMeasured(after, nanos, 0);
  EXPECT_LT(after.message_s, before.message_s);
  EXPECT_GT(after.copy_bytes_per_s, before.copy_bytes_per_s);
}

TEST(LinkFitTest, ASlowNodeIsSlowInAllItsParts) {
  const LinkModel before = DefaultCostModel().within_node;
  const LinkNanos nanos{.trip = 10'000, .exchange = kLong, .bytes = kLong};
  const LinkModel after = FitLink(before, 1e-6, nanos, /*between_nodes=*/false);
  ExpectPredictsWhatWasMeasured(after, nanos, 1e-6);
  EXPECT_GT(after.message_s, before.message_s);
  EXPECT_LT(after.copy_bytes_per_s, before.copy_bytes_per_s);
  EXPECT_LT(after.announced_bytes_per_s, before.announced_bytes_per_s);
  EXPECT_EQ(after.announced_bytes, before.announced_bytes);
}

TEST(LinkFitTest, NoLinkIsInfinitelyFastOrSlow) {
  constexpr std::int64_t kYear = 365LL * 24 * 3600 * 1'000'000'000;
  for (const std::int64_t time : {std::int64_t{0}, std::int64_t{1}, kYear}) {
    for (const bool between : {false, true}) {
      const CostModel& model = DefaultCostModel();
      const LinkModel fit = FitLink(between ? model.between_nodes : model.within_node, model.step_s,
                                    {.trip = time, .exchange = time, .bytes = kLong}, between);
      for (const double seconds : {fit.latency_s, fit.message_s}) {
        EXPECT_GT(seconds, 0);
        EXPECT_LE(seconds, 10);
      }
      for (const double rate : {fit.bytes_per_s, fit.copy_bytes_per_s}) {
        EXPECT_GE(rate, 100);
        EXPECT_LT(rate, 1e14);
      }
    }
  }
}

}  // namespace
}  // namespace tutti
