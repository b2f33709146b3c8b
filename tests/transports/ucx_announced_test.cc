// Messages that the receiver reads from its sender's memory: the conformance suite, all of whose messages are sent from
// the sender's region, or from elsewhere in its process, and what is particular to them.
#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <thread>

#include "gmock/gmock.h"
#include "tests/transports/conformance.h"
#include "tests/transports/payload.h"
#include "transports/forwarding.h"

namespace tutti {
namespace {

using testing::HasSubstr;

constexpr std::int64_t kRoom = std::int64_t{1} << 34;  // address space
constexpr std::int64_t kLong = 1 << 20;

enum class From { kRegion, kProcess };

// Copies what is sent to a part of the region that nobody else uses, or to other memory, and sends it from there.
class SendsCopies final : public ForwardingTransport {
 public:
  SendsCopies(std::unique_ptr<Transport> ucx, std::int64_t region_bytes, From from)
      : ForwardingTransport(std::move(ucx)), region_bytes_(region_bytes), from_(from) {}

  MappedRegion region() const override { return {ForwardingTransport::region().base, region_bytes_}; }
  Endpoint& endpoint(Rank peer) override {
    const auto index = static_cast<std::size_t>(peer);
    while (endpoints_.size() <= index) {
      endpoints_.emplace_back(this, &inner().endpoint(static_cast<Rank>(endpoints_.size())));
    }
    return endpoints_[index];
  }
  absl::Status Seclude(std::byte* data, std::int64_t bytes) override {
    const bool fits = data - region().base <= region_bytes_ - bytes;
    return fits ? inner().Seclude(data, bytes) : absl::InvalidArgumentError("not within the region");
  }

 private:
  class CopyingEndpoint final : public Endpoint {
   public:
    CopyingEndpoint(SendsCopies* transport, Endpoint* endpoint) : transport_(*transport), endpoint_(*endpoint) {}
    void Send(std::uint64_t tag, const void* data, std::int64_t bytes, Completion* completion) override {
      endpoint_.Send(tag, transport_.CopyOf(data, bytes), bytes, completion);
    }
    void Recv(std::uint64_t tag, void* data, std::int64_t bytes, Completion* completion) override {
      endpoint_.Recv(tag, data, bytes, completion);
    }
    MappedRegion region() const override { return {endpoint_.region().base, transport_.region_bytes_}; }
    void Wake() override { endpoint_.Wake(); }

   private:
    SendsCopies& transport_;
    Endpoint& endpoint_;
  };

  const void* CopyOf(const void* data, std::int64_t bytes) {
    if (from_ == From::kProcess) {
      return copies_.emplace_back(static_cast<const char*>(data), static_cast<std::size_t>(bytes)).data();
    }
    std::byte* const copy = ForwardingTransport::region().base + region_bytes_ + used_;
    used_ += bytes;
    EXPECT_LE(used_, kRoom);
    std::copy_n(static_cast<const std::byte*>(data), bytes, copy);
    return copy;
  }

  const std::int64_t region_bytes_;
  std::int64_t used_ = 0;
  const From from_;
  std::deque<std::string> copies_;
  std::deque<CopyingEndpoint> endpoints_;
};

std::vector<std::unique_ptr<Transport>> MakeSendingCopies(int size, const TransportOptions& options, From from) {
  std::vector<std::unique_ptr<Transport>> transports;
  for (Rank rank = 0; rank < size; ++rank) {
    std::unique_ptr<Transport> ucx = MakeUcxTransport({}, {.region_bytes = options.region_bytes + kRoom}).value();
    transports.push_back(std::make_unique<SendsCopies>(std::move(ucx), options.region_bytes, from));
  }
  return transports;
}

std::vector<std::unique_ptr<Transport>> MakeSendingFromRegions(int size, const TransportOptions& options) {
  return MakeSendingCopies(size, options, From::kRegion);
}

std::vector<std::unique_ptr<Transport>> MakeSendingFromProcesses(int size, const TransportOptions& options) {
  return MakeSendingCopies(size, options, From::kProcess);
}

const TransportMaker kFromRegions = {.name = "from_regions", .make = MakeSendingFromRegions};
const TransportMaker kFromProcesses = {.name = "from_processes", .make = MakeSendingFromProcesses};
INSTANTIATE_TEST_SUITE_P(UcxAnnounced, TransportConformance, testing::Values(kFromRegions, kFromProcesses),
                         NameOfMaker);
INSTANTIATE_TEST_SUITE_P(UcxAnnounced, TransportConformanceSlow, testing::Values(kFromRegions, kFromProcesses),
                         NameOfMaker);

class UcxAnnounced : public TransportConformance {};
INSTANTIATE_TEST_SUITE_P(, UcxAnnounced, testing::Values(kFromRegions, kFromProcesses), NameOfMaker);

TEST_P(UcxAnnounced, ASendEndsWhenItsMessageHasBeenTaken) {
  std::atomic<int> taken = 0;
  RunRanks(2, [&](RankDriver& me) {
    std::string data = Payload(kLong, 1);
    Op op, word;
    if (me.rank == 0) {
      me.Send(1, 5, data, &op);
      std::string now(1, '\0');
      me.Recv(1, 6, &now, &word);
      me.Await({&word});
      EXPECT_EQ(op.calls, 0);
      taken = 1;
      me.WakeAll();
      me.Await({&op});
      EXPECT_EQ(op.status, absl::OkStatus());
    } else {
      me.Send(0, 6, "x", &word);
      me.DriveUntil([&] { return taken == 1; });
      std::string received(kLong, '\0');
      me.Recv(0, 5, &received, &op);
      me.Await({&op});
      EXPECT_EQ(op.status, absl::OkStatus());
      EXPECT_EQ(received, data);
    }
  });
}

// Between two ranks UCX has room for 64 messages at a time, and keeps what does not fit until it is moved again.
TEST_P(UcxAnnounced, EverySendEndsThoughItsReceiverMovesNoMessagesAfterItsReceivesHaveEnded) {
  constexpr int kReceivers = 2;
  constexpr int kMessages = 40;
  const std::string data = Payload(64 << 10, 1);
  std::atomic<int> have_all = 0;
  std::atomic<bool> over = false;
  const auto await = [](std::atomic<int>& count) {
    for (int seen = count; seen < kReceivers; seen = count) count.wait(seen);
  };
  RunRanks(1 + kReceivers, [&](RankDriver& me) {
    std::vector<Op> ops(me.rank == 0 ? kReceivers * kMessages : kMessages);
    const auto all_ended = [&] {
      return std::all_of(ops.begin(), ops.end(), [](const Op& op) { return op.calls > 0; });
    };
    if (me.rank == 0) {
      for (std::size_t i = 0; i < ops.size(); ++i) me.Send(1 + static_cast<Rank>(i) / kMessages, 5, data, &ops[i]);
      await(have_all);
      me.DriveUntil(all_ended);
      for (const Op& op : ops) EXPECT_EQ(op.status, absl::OkStatus());
      over = true;
      over.notify_all();
      return;
    }
    std::vector<std::string> received(kMessages, std::string(data.size(), '\0'));
    for (int i = 0; i < kMessages; ++i) me.Recv(0, 5, &received[static_cast<std::size_t>(i)], &ops[i]);
    me.DriveUntil([&] { return received.back() == data; });
    ++have_all;
    have_all.notify_all();
    await(have_all);
    me.DriveUntil(all_ended);
    over.wait(false);
    for (const Op& op : ops) EXPECT_EQ(op.status, absl::OkStatus());
  });
}

TEST_P(UcxAnnounced, ADifferenceInLengthNamesBothLengths) {
  for (const std::int64_t expected : {0, 1, 23, 24, 25, 31, 32, 33, 100'000, 2 << 20}) {
    RunRanks(2, [&](RankDriver& me) {
      Op op, next;
      if (me.rank == 0) {
        me.Send(1, 5, Payload(kLong, 1), &op);
        me.Send(1, 5, "next", &next);
        me.Await({&op, &next});
        EXPECT_EQ(op.status, absl::OkStatus());
        return;
      }
      std::string received(static_cast<std::size_t>(expected), '\0');
      std::string word(4, '\0');
      me.Recv(0, 5, &received, &op);
      me.Recv(0, 5, &word, &next);
      me.Await({&op, &next});
      EXPECT_EQ(op.status.code(), absl::StatusCode::kInvalidArgument) << op.status;
      EXPECT_THAT(op.status.message(), HasSubstr(std::to_string(kLong)));
      EXPECT_THAT(op.status.message(), HasSubstr(std::to_string(expected)));
      EXPECT_EQ(next.status, absl::OkStatus());
      EXPECT_EQ(word, "next");
    });
  }
}

// A receiver that expects more than comes gets the message itself, not an announcement.
TEST_P(UcxAnnounced, AShortMessageInPlaceOfALongOneNamesBothLengths) {
  for (const std::size_t sent : {0, 1, 23, 24, 25, 31, 32, 33}) {
    RunRanks(2, [&](RankDriver& me) {
      Op op;
      std::string data(me.rank == 0 ? sent : kLong, 'x');
      me.rank == 0 ? me.Send(1, 5, data, &op) : me.Recv(0, 5, &data, &op);
      me.Await({&op});
      EXPECT_EQ(op.status.code(), me.rank == 0 ? absl::StatusCode::kOk : absl::StatusCode::kInvalidArgument);
      if (me.rank == 1) {
        EXPECT_THAT(op.status.message(), HasSubstr(std::to_string(kLong)));
      }
    });
  }
}

TEST_P(UcxAnnounced, AReceiverThatDiscardsEndsTheSend) {
  constexpr std::uint32_t kGroup = 3;
  constexpr std::uint64_t kTag = std::uint64_t{kGroup} << kGroupShift;
  for (const bool receives : {false, true}) {
    RunRanks(2, [&](RankDriver& me) {
      Op op, sign;
      if (me.rank == 0) {
        me.Send(1, kTag, Payload(kLong, 1), &op);
        me.Send(1, 1, "x", &sign);
        me.Await({&op, &sign});
        EXPECT_EQ(op.status, absl::OkStatus());
        return;
      }
      std::string word(1, '\0');
      me.Recv(0, 1, &word, &sign);
      me.Await({&sign});  // the announcement, sent before, has come
      std::string received(kLong, '\0');
      if (receives) me.Recv(0, kTag, &received, &op);
      me.transport.Discard(kGroup);
      if (!receives) return;
      me.Await({&op});
      EXPECT_EQ(op.status.code(), absl::StatusCode::kCancelled) << op.status;
    });
  }
}

// The bits above a tag name the sender, and 0x4000 is no rank of two.
TEST_P(UcxAnnounced, AMessageFromASourceThatIsNoRankIsForgotten) {
  constexpr std::uint64_t kNoRank = std::uint64_t{0x4000} << kTagBits;
  constexpr std::uint32_t kGroup = 3;
  constexpr std::uint64_t kDiscarded = std::uint64_t{kGroup} << kGroupShift;
  RunRanks(2, [&](RankDriver& me) {
    const std::string data = Payload(kLong, 1);
    Op word, answer;
    std::array<Op, 4> forged;
    std::string text(4, '\0');
    if (me.rank == 0) {
      me.Send(1, kNoRank | kDiscarded, "word", &forged[0]);
      me.Send(1, kNoRank | kDiscarded, data, &forged[1]);
      me.Send(1, kNoRank | 5, "lies", &forged[2]);
      me.Send(1, kNoRank | 5, data, &forged[3]);
      me.Send(1, 5, "word", &word);
      me.Recv(1, 6, &text, &answer);
      me.Await({&word, &answer});
      me.transport.Shutdown(absl::InternalError("over"));
      me.Await({&forged[0], &forged[1], &forged[2], &forged[3]});
      return;
    }
    me.transport.RecvFromAny(5, text.data(), static_cast<std::int64_t>(text.size()), &word);
    me.Await({&word});
    EXPECT_EQ(word.status, absl::OkStatus());
    EXPECT_EQ(word.source, 0);
    EXPECT_EQ(text, "word");
    me.transport.Discard(kGroup);
    me.Send(0, 6, "done", &answer);
    me.Await({&answer});
  });
}

TEST_P(UcxAnnounced, AnAbortOfTheSenderEndsBothSides) {
  RunRanks(2, [&](RankDriver& me) {
    Op op, sign;
    if (me.rank == 0) {
      me.Send(1, 5, Payload(kLong, 1), &op);
      me.Send(1, 6, "x", &sign);
      me.Await({&sign});
      me.transport.Shutdown(absl::AbortedError("enough"));
      EXPECT_EQ(op.calls, 1);
      EXPECT_EQ(op.status.code(), absl::StatusCode::kAborted);
      return;
    }
    std::string word(1, '\0');
    me.Recv(0, 6, &word, &sign);
    me.Await({&sign});
    EXPECT_EQ(me.AwaitError().code(), absl::StatusCode::kAborted);
    std::string received(kLong, '\0');
    me.Recv(0, 5, &received, &op);
    me.Await({&op});
    EXPECT_EQ(op.status.code(), absl::StatusCode::kAborted) << op.status;
  });
}

// Neither a Send that waits for its receiver, nor a later one, waits for a rank that leaves in order.
TEST_P(UcxAnnounced, ASendToARankThatLeavesWithoutReceivingEnds) {
  RunRanks(2, [&](RankDriver& me) {
    Op sign;
    if (me.rank == 1) {
      std::string word(1, '\0');
      me.Recv(0, 6, &word, &sign);
      me.Await({&sign});
      me.transport.Shutdown(absl::OkStatus());
      return;
    }
    const std::string data = Payload(kLong, 1);
    Op early, late;
    me.Send(1, 5, data, &early);
    me.Send(1, 6, "x", &sign);
    me.CheckUntil([&] { return early.calls > 0; });
    EXPECT_EQ(early.status.code(), absl::StatusCode::kUnavailable) << early.status;
    me.Send(1, 5, data, &late);
    me.CheckUntil([&] { return late.calls > 0; });
    EXPECT_EQ(late.status.code(), absl::StatusCode::kUnavailable) << late.status;
    EXPECT_EQ(sign.status, absl::OkStatus());
    EXPECT_TRUE(me.FirstLoss().ok()) << me.FirstLoss();
  });
}

// The receiver has begun to read when the sender ends its Send without waiting for the receiver: what the receiver
// reads may be anything.
TEST_P(UcxAnnounced, AReadOfASendThatHasEndedWithoutItDoesNotEndWell) {
  for (const bool shuts_down : {false, true}) {
    std::atomic<int> step = 0;
    const absl::Status cause = absl::AbortedError("enough");
    RunRanks(2, [&](RankDriver& me) {
      Op op, sign;
      if (me.rank == 0) {
        me.Send(1, 5, Payload(8 * kLong, 1), &op);
        me.Send(1, 6, "x", &sign);
        me.DriveUntil([&] { return step == 1; });
        shuts_down ? me.transport.Shutdown(cause) : me.transport.Disconnect(1, cause);
        if (!shuts_down) me.Await({&op});
        EXPECT_EQ(op.status, cause);
        step = 2;
        return;
      }
      std::string word(1, '\0');
      me.Recv(0, 6, &word, &sign);
      me.Await({&sign});
      std::string received(8 * kLong, '\0');
      me.Recv(0, 5, &received, &op);
      me.transport.Progress();  // reads a part
      EXPECT_EQ(op.calls, 0);
      step = 1;
      me.WakeAll();
      while (step != 2) std::this_thread::yield();
      me.Await({&op});
      EXPECT_EQ(op.status.code(), cause.code()) << op.status;
    });
  }
}

TEST(UcxAnnouncedMemory, ASecludedPartOfTheRegionIsSentWithItsNewContents) {
  std::vector<std::unique_ptr<Transport>> transports;
  std::vector<std::string> addresses;
  for (Rank rank = 0; rank < 2; ++rank) {
    transports.push_back(MakeUcxTransport({}, {.region_bytes = 2 * kLong}).value());
    addresses.push_back(transports.back()->Address().value());
  }
  std::vector<std::thread> ranks;
  for (Rank rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      Transport& me = *transports[static_cast<std::size_t>(rank)];
      ASSERT_EQ(me.Connect(rank, addresses, absl::Now() + absl::Minutes(1)), absl::OkStatus());
      RankDriver driver(rank, &me, [] {});
      Op op;
      Op behind;  // begins on the last page that is secluded, after the range
      constexpr std::int64_t kBehind = 64 << 10;
      std::byte* const data = me.region().base + 100;
      if (rank == 0) {
        ASSERT_EQ(me.Seclude(data, kLong), absl::OkStatus());
        std::memset(data, 7, kLong + kBehind);
        me.endpoint(1).Send(5, data, kLong, &op);
        me.endpoint(1).Send(6, data + kLong, kBehind, &behind);
      } else {
        me.endpoint(0).Recv(5, data, kLong, &op);
        me.endpoint(0).Recv(6, data + kLong, kBehind, &behind);
      }
      driver.Await({&op, &behind});
      EXPECT_EQ(op.status, absl::OkStatus());
      EXPECT_EQ(behind.status, absl::OkStatus());
      EXPECT_EQ(std::count(data, data + kLong + kBehind, std::byte{7}), kLong + kBehind);
      me.Shutdown(absl::OkStatus());
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

}  // namespace
}  // namespace tutti
