#include "comm/link_times.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <utility>

namespace tutti {
namespace {

// A link whose shaper saves up bytes while nobody sends, and lets these pass at 10 GB/s.
class ShapedLink {
 public:
  ShapedLink(double bytes_per_s, std::int64_t trip_nanos, double most_saved = 128 << 10)
      : bytes_per_nano_(bytes_per_s * 1e-9), trip_nanos_(trip_nanos), most_saved_(most_saved), saved_(most_saved) {}

  std::int64_t Exchange(std::int64_t bytes) {
    const auto size = static_cast<double>(bytes);
    const double on_the_way = std::max(size / 10, (size - saved_) / bytes_per_nano_);
    const std::int64_t connecting = bytes > 0 ? std::exchange(connecting_nanos_, 0) : 0;
    const std::int64_t nanos = trip_nanos_ + connecting + static_cast<std::int64_t>(on_the_way);
    saved_ = std::min(most_saved_, saved_ + static_cast<double>(nanos) * bytes_per_nano_ - size);
    spent_nanos_ += nanos;
    ++exchanges_;
    return nanos;
  }
  void set_connecting_nanos(std::int64_t nanos) { connecting_nanos_ = nanos; }
  std::int64_t spent_nanos() const { return spent_nanos_; }
  int exchanges() const { return exchanges_; }

 private:
  const double bytes_per_nano_;
  const std::int64_t trip_nanos_;
  const double most_saved_;
  double saved_;
  std::int64_t connecting_nanos_ = 0;  // that the first exchange of bytes takes longer
  std::int64_t spent_nanos_ = 0;
  int exchanges_ = 0;
};

LinkNanos Time(ShapedLink& link) {
  const absl::StatusOr<LinkNanos> nanos =
      TimeLink([&](std::int64_t bytes) -> absl::StatusOr<std::int64_t> { return link.Exchange(bytes); });
  EXPECT_TRUE(nanos.ok()) << nanos.status();
  return nanos.value_or(LinkNanos());
}

double Bandwidth(const LinkNanos& nanos) {
  return static_cast<double>(nanos.bytes) / static_cast<double>(nanos.exchange) * 1e9;
}

TEST(LinkTimesTest, FindTheRateOfAShapedLinkSoon) {
  for (const double bytes_per_s : {12.5e6, 125e6, 1.25e9, 5e9}) {
    ShapedLink link(bytes_per_s, 60'000);
    const LinkNanos nanos = Time(link);
    EXPECT_EQ(nanos.trip, 60'000);
    EXPECT_NEAR(Bandwidth(nanos), bytes_per_s, 0.1 * bytes_per_s);
    EXPECT_LT(link.spent_nanos(), 60'000'000) << bytes_per_s;
  }
}

TEST(LinkTimesTest, LargerSavingsDeceiveNoMore) {
  ShapedLink link(125e6, 60'000, /*most_saved=*/1 << 20);
  EXPECT_NEAR(Bandwidth(Time(link)), 125e6, 12.5e6);
}

TEST(LinkTimesTest, DoNotCountTheConnecting) {
  ShapedLink link(1.25e9, 60'000);
  link.set_connecting_nanos(300'000'000);
  EXPECT_NEAR(Bandwidth(Time(link)), 1.25e9, 0.1 * 1.25e9);
}

TEST(LinkTimesTest, TakeFewTripsOfALongWay) {
  ShapedLink link(1.25e9, 100'000'000);
  EXPECT_EQ(Time(link).trip, 100'000'000);
  EXPECT_LT(link.exchanges(), 15);  // where a quick link takes more than 20
}

// Another program has the processor for 10 ms, time and again.
TEST(LinkTimesTest, TakeTheFastestExchange) {
  ShapedLink link(1.25e9, 60'000);
  int exchanges = 0;
  const absl::StatusOr<LinkNanos> nanos = TimeLink([&](std::int64_t bytes) -> absl::StatusOr<std::int64_t> {
    const bool disturbed = bytes > 0 && exchanges++ % 2 == 0;
    return link.Exchange(bytes) + (disturbed ? 10'000'000 : 0);
  });
  ASSERT_TRUE(nanos.ok()) << nanos.status();
  EXPECT_NEAR(Bandwidth(*nanos), 1.25e9, 0.1 * 1.25e9);
}

// An exchange that seems to be faster than a trip, because the machine was busy.
TEST(LinkTimesTest, AreNeverZero) {
  const absl::StatusOr<LinkNanos> nanos =
      TimeLink([](std::int64_t bytes) -> absl::StatusOr<std::int64_t> { return bytes > 0 ? 1000 : 5000; });
  ASSERT_TRUE(nanos.ok());
  EXPECT_EQ(nanos->exchange, 1);
  EXPECT_EQ(nanos->bytes, kMaxExchanged);
}

TEST(LinkTimesTest, EndWithTheFirstError) {
  for (const std::int64_t fails_at : {std::int64_t{0}, std::int64_t{1} << 20}) {
    const absl::StatusOr<LinkNanos> nanos = TimeLink([&](std::int64_t bytes) -> absl::StatusOr<std::int64_t> {
      if (bytes == fails_at) return absl::UnavailableError("rank 1 is gone");
      return 1000;
    });
    EXPECT_EQ(nanos.status(), absl::UnavailableError("rank 1 is gone"));
  }
}

}  // namespace
}  // namespace tutti
