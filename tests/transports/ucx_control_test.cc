// Control frames and addresses that come from peers are parsed without trust.
#include <gtest/gtest.h>

#include <limits>

#include "transports/ucx/address.h"
#include "transports/ucx/control.h"

namespace tutti::ucx {
namespace {

TEST(UcxControl, CarriesACause) {
  Control abort;
  abort.kind = Control::Kind::kAbort;
  abort.from = 7;
  abort.cause = absl::UnavailableError("rank 2 died");
  const ControlFrame frame = Encode(abort);
  const std::optional<Control> decoded = Decode(frame.data(), frame.size());
  ASSERT_TRUE(decoded.has_value());
  EXPECT_EQ(decoded->kind, Control::Kind::kAbort);
  EXPECT_EQ(decoded->from, 7);
  EXPECT_EQ(decoded->cause, abort.cause);
}

TEST(UcxControl, CarriesAnAnswer) {
  for (const Rank waits_for : {-1, 0, 5, std::numeric_limits<Rank>::max()}) {
    Control answer;
    answer.kind = Control::Kind::kAnswers;
    answer.from = 3;
    answer.waits_for = waits_for;
    const ControlFrame frame = Encode(answer);
    const std::optional<Control> decoded = Decode(frame.data(), frame.size());
    ASSERT_TRUE(decoded.has_value());
    EXPECT_EQ(decoded->kind, Control::Kind::kAnswers);
    EXPECT_EQ(decoded->from, 3);
    EXPECT_EQ(decoded->waits_for, waits_for);
  }
}

TEST(UcxControl, CarriesANote) {
  for (const std::uint32_t group : {0u, 7u, std::numeric_limits<std::uint32_t>::max()}) {
    Control note;
    note.kind = Control::Kind::kNote;
    note.from = 3;
    note.group = group;
    note.cause = absl::DataLossError("flipped bit");
    const ControlFrame frame = Encode(note);
    const std::optional<Control> decoded = Decode(frame.data(), frame.size());
    ASSERT_TRUE(decoded.has_value());
    EXPECT_EQ(decoded->kind, Control::Kind::kNote);
    EXPECT_EQ(decoded->from, 3);
    EXPECT_EQ(decoded->group, group);
    EXPECT_EQ(decoded->cause, note.cause);
  }
}

TEST(UcxControl, CarriesANumberOfMessages) {
  for (const Control::Kind kind : {Control::Kind::kTaken, Control::Kind::kGoodbye}) {
    Control control;
    control.kind = kind;
    control.from = 3;
    control.message = std::numeric_limits<std::uint32_t>::max();
    const ControlFrame frame = Encode(control);
    const std::optional<Control> decoded = Decode(frame.data(), frame.size());
    ASSERT_TRUE(decoded.has_value());
    EXPECT_EQ(decoded->kind, kind);
    EXPECT_EQ(decoded->message, control.message);
    EXPECT_EQ(decoded->group, 0u);
  }
}

TEST(UcxControl, CutsALongCause) {
  Control abort;
  abort.kind = Control::Kind::kAbort;
  abort.cause = absl::InternalError(std::string(5000, 'x'));
  const ControlFrame frame = Encode(abort);
  const std::optional<Control> decoded = Decode(frame.data(), frame.size());
  ASSERT_TRUE(decoded.has_value());
  EXPECT_EQ(decoded->cause, absl::InternalError(std::string(kMaxCauseBytes, 'x')));
}

TEST(UcxControl, RejectsWhatIsNoFrame) {
  const ControlFrame good = Encode(Control());
  EXPECT_FALSE(Decode(good.data(), good.size() - 1).has_value());
  EXPECT_FALSE(Decode(good.data(), 0).has_value());
  for (const std::size_t at : {0u, 4u, 11u, 23u}) {  // magic, kind, the sign of the sender, the high byte of the length
    ControlFrame bad = good;
    bad[at] = static_cast<char>(0xFF);
    EXPECT_FALSE(Decode(bad.data(), bad.size()).has_value()) << "byte " << at;
  }
  for (const Control::Kind kind : {Control::Kind::kAbort, Control::Kind::kNote}) {
    ControlFrame no_cause = good;
    no_cause[4] = static_cast<char>(kind);
    // A note without a cause says that its sender has left the group.
    EXPECT_EQ(Decode(no_cause.data(), no_cause.size()).has_value(), kind == Control::Kind::kNote);
    ControlFrame negative_code = no_cause;
    negative_code[15] = static_cast<char>(0xFF);
    EXPECT_FALSE(Decode(negative_code.data(), negative_code.size()).has_value());
  }
  ControlFrame of_another_version = good;
  of_another_version[3] = '2';
  EXPECT_FALSE(Decode(of_another_version.data(), of_another_version.size()).has_value());
}

TEST(UcxAddress, SurvivesTheStoreAndRejectsEveryCut) {
  PeerAddress address;
  address.node = "a-node";
  address.user = 1000;
  address.socket = "tutti-socket";
  address.nonce = NewNonce();
  address.region_bytes = 12345;
  address.worker = std::string(3000, 'w');
  address.wire = "n";
  const std::string blob = Encode(address);
  const absl::StatusOr<PeerAddress> decoded = DecodeAddress(blob);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->node, address.node);
  EXPECT_TRUE(Equal(decoded->nonce, address.nonce));
  EXPECT_EQ(decoded->region_bytes, 12345);
  EXPECT_EQ(decoded->worker, address.worker);
  EXPECT_EQ(decoded->wire, "n");
  for (std::size_t bytes = 0; bytes < blob.size(); ++bytes) {
    EXPECT_FALSE(DecodeAddress(absl::string_view(blob).substr(0, bytes)).ok()) << bytes;
  }
  EXPECT_FALSE(DecodeAddress(blob + "x").ok());
  EXPECT_FALSE(DecodeAddress(std::string(blob.size(), '\xff')).ok());
}

TEST(UcxAddress, NoncesDiffer) { EXPECT_FALSE(Equal(NewNonce(), NewNonce())); }

}  // namespace
}  // namespace tutti::ucx
