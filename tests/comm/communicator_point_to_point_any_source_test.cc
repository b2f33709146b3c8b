// Recv from any source, and sends of a rank to itself.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "tests/comm/point_to_point.h"

namespace tutti {
namespace {

using PointToPointAnySource = PointToPoint;

// All ranks but the last race to send to the last one. Each message, short or so long that it is announced before it is
// sent, names its sender and its number.
TEST_P(PointToPointAnySource, EachMessageComesOnceAndInTheOrderOfItsSender) {
  for (const int size : {2, 3, 5}) {
    for (const std::int64_t count : {2, 50'000}) {
      const int messages = count == 2 ? 400 : 12;
      RunWorld(size, options(), [&](Communicator& comm) {
        const Rank receiver = size - 1;
        const auto length = static_cast<std::size_t>(count);
        std::vector<Work> works;
        if (comm.rank() != receiver) {
          std::vector<std::vector<std::int64_t>> out;
          for (int i = 0; i < messages; ++i) {
            out.emplace_back(length, i).front() = comm.rank();
            works.push_back(comm.Send(out.back().data(), count, DType::kI64, receiver, {.tag = 9}));
          }
          return WaitForAll(works);
        }
        const std::size_t total = static_cast<std::size_t>(messages) * static_cast<std::size_t>(size - 1);
        std::vector<std::vector<std::int64_t>> in(total, std::vector<std::int64_t>(length, -1));
        for (std::vector<std::int64_t>& message : in) {
          works.push_back(comm.Recv(message.data(), count, DType::kI64, kAnySource, {.tag = 9}));
        }
        WaitForAll(works);
        std::vector<int> next(static_cast<std::size_t>(size));
        for (std::size_t i = 0; i < total; ++i) {
          const Rank source = works[i].source();
          ASSERT_TRUE(source >= 0 && source < receiver) << source;
          EXPECT_EQ(in[i].front(), source);
          EXPECT_EQ(in[i].back(), next[static_cast<std::size_t>(source)]++);
        }
      });
    }
  }
}

// A server answers whoever asks: receives from any source and from one rank, of one tag, follow each other.
TEST_P(PointToPointAnySource, AServerAnswersWhoeverAsks) {
  constexpr int kQuestions = 30;
  constexpr int kSize = 4;
  RunWorld(kSize, options(), [&](Communicator& comm) {
    if (comm.rank() != 0) {
      for (std::int64_t i = 0; i < kQuestions; ++i) {
        const std::int64_t question[2] = {comm.rank(), i};
        std::int64_t answer = -1;
        EXPECT_EQ(comm.Send(&question[0], 1, DType::kI64, 0, {.tag = 1}).Wait(), absl::OkStatus());
        EXPECT_EQ(comm.Send(&question[1], 1, DType::kI64, 0, {.tag = 1}).Wait(), absl::OkStatus());
        EXPECT_EQ(comm.Recv(&answer, 1, DType::kI64, 0, {.tag = 2}).Wait(), absl::OkStatus());
        ASSERT_EQ(answer, 100 * comm.rank() + i);
      }
      return;
    }
    for (int i = 0; i < kQuestions * (kSize - 1); ++i) {
      std::int64_t who = -1;
      std::int64_t number = -1;
      Work asked = comm.Recv(&who, 1, DType::kI64, kAnySource, {.tag = 1});
      ASSERT_EQ(asked.Wait(), absl::OkStatus());
      ASSERT_EQ(asked.source(), who);
      ASSERT_EQ(comm.Recv(&number, 1, DType::kI64, asked.source(), {.tag = 1}).Wait(), absl::OkStatus());
      const std::int64_t answer = 100 * who + number;
      ASSERT_EQ(comm.Send(&answer, 1, DType::kI64, asked.source(), {.tag = 2}).Wait(), absl::OkStatus());
    }
  });
}

// Of the receives that a message could meet, the one that was posted first takes it.
TEST_P(PointToPointAnySource, ReceivesFromAnySourceAndFromOneRankTakeTurns) {
  constexpr int kMessages = 90;
  RunWorld(3, options(), [&](Communicator& comm) {
    std::vector<std::int64_t> values(kMessages);
    std::vector<Work> works;
    if (comm.rank() == 1) {
      for (int i = 0; i < kMessages; ++i) {
        values[static_cast<std::size_t>(i)] = i;
        works.push_back(comm.Send(&values[static_cast<std::size_t>(i)], 1, DType::kI64, 0));
      }
    } else if (comm.rank() == 0) {
      for (int i = 0; i < kMessages; ++i) {
        const Rank from = i % 2 == 0 ? kAnySource : 1;
        works.push_back(comm.Recv(&values[static_cast<std::size_t>(i)], 1, DType::kI64, from));
      }
    }
    WaitForAll(works);
    for (int i = 0; comm.rank() == 0 && i < kMessages; ++i) EXPECT_EQ(values[static_cast<std::size_t>(i)], i);
  });
}

TEST_P(PointToPointAnySource, ARankSendsToItselfInBothOrders) {
  for (const int size : {1, 3}) {
    RunWorld(size, options(), [&](Communicator& comm) {
      for (const std::size_t length : {std::size_t{0}, std::size_t{1}, std::size_t{70'001}, std::size_t{9'000'001}}) {
        for (const bool send_first : {true, false}) {
          for (const Rank from : {comm.rank(), kAnySource}) {
            const std::vector<std::uint8_t> out = MessageOf(length, comm.rank(), 0, 0);
            std::vector<std::uint8_t> in(length);
            const auto count = static_cast<std::int64_t>(length);
            Work send, recv;
            if (send_first) send = comm.Send(out.data(), count, DType::kU8, comm.rank());
            recv = comm.Recv(in.data(), count, DType::kU8, from);
            if (!send_first) send = comm.Send(out.data(), count, DType::kU8, comm.rank());
            EXPECT_EQ(recv.Wait(), absl::OkStatus());
            EXPECT_EQ(send.Wait(), absl::OkStatus());
            EXPECT_EQ(recv.source(), comm.rank());
            EXPECT_TRUE(in == out) << length;
          }
        }
      }
    });
  }
}

// Two threads of one rank send messages to each other through the communicator.
TEST_P(PointToPointAnySource, ThreadsOfARankSendToEachOther) {
  constexpr int kRounds = 300;
  RunWorld(2, options(), [&](Communicator& comm) {
    const auto play = [&](int mine, int theirs) {
      for (std::int64_t round = 0; round < kRounds; ++round) {
        std::int64_t received = -1;
        Work send = comm.Send(&round, 1, DType::kI64, comm.rank(), {.tag = theirs});
        ASSERT_EQ(comm.Recv(&received, 1, DType::kI64, kAnySource, {.tag = mine}).Wait(), absl::OkStatus());
        ASSERT_EQ(send.Wait(), absl::OkStatus());
        ASSERT_EQ(received, round);
      }
    };
    std::thread other([&] { play(1, 2); });
    play(2, 1);
    other.join();
  });
}

INSTANTIATE_TEST_SUITE_P(, PointToPointAnySource, ::testing::ValuesIn(WorldKinds()), NameOfWorldKind);

}  // namespace
}  // namespace tutti
