// States that are damaged, foreign or made up are refused with an error that says why; nothing crashes or changes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <string>

#include "tests/harness/training.h"
#include "tests/sync/saved_state.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

Training SmallTraining(const std::string& strategy, int size) {
  Training training;
  training.model = {.counts = {300, 200}, .bucket_bytes = 1200, .first_bucket_bytes = 800, .buckets = {{1}, {0}}};
  training.strategy = strategy;
  training.initial = RandomNumbers(500, 1);
  training.gradients = RandomGradients(3, size, 500);
  return training;
}

// States of all ranks after three steps.
std::vector<std::string> StatesOf(const Training& training) {
  std::vector<std::string> states(training.size());
  RunReplicas(training, [&](Communicator& world, Replica& replica) {
    for (const Ranks& step : training.gradients) {
      ASSERT_TRUE(replica.Step(step[world.rank()], training.lr).ok());
    }
    states[world.rank()] = replica.synchronizer().SaveState();
  });
  return states;
}

using Load = std::function<absl::Status(const std::vector<std::string>& states)>;

// Calls `test` on rank 0 of a world of 2, with a function that loads states, and checks that refused states change
// nothing. Rank 1 takes part in each load with sound states: its own if `sound` is of 2 ranks, otherwise all of
// `sound`.
void OnRankZero(const std::string& strategy, const std::vector<std::string>& sound,
                const std::function<void(const Load&)>& test) {
  constexpr int kEnd = -1;
  std::atomic<int> loads = 0;
  const auto publish = [&](int value) {
    loads = value;
    loads.notify_one();
  };
  RunReplicas(SmallTraining(strategy, 2), [&](Communicator& world, Replica& replica) {
    Synchronizer& synchronizer = replica.synchronizer();
    if (world.rank() == 1) {
      const std::vector<std::string> own = {sound[1]};
      for (int seen = 0; seen != kEnd;) {
        loads.wait(seen);
        seen = loads;
        if (seen != kEnd) (void)synchronizer.LoadState(sound.size() == 2 ? own : sound);
      }
      return;
    }
    int count = 0;
    test([&](const std::vector<std::string>& states) {
      const std::string before = synchronizer.SaveState();
      publish(++count);
      absl::Status status = synchronizer.LoadState(states);
      if (!status.ok()) {
        EXPECT_EQ(synchronizer.SaveState(), before);
        EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
        EXPECT_FALSE(status.message().empty());
      }
      return status;
    });
    publish(kEnd);
  });
}

class Damaged : public ::testing::TestWithParam<const char*> {};

TEST_P(Damaged, TruncationsAreRefused) {
  const std::vector<std::string> states = StatesOf(SmallTraining(GetParam(), 2));
  OnRankZero(GetParam(), states, [&](const Load& load) {
    EXPECT_TRUE(load({states[0]}).ok());
    for (std::size_t length = 0; length < states[0].size(); length += length < 400 ? 1 : 61) {
      const absl::Status status = load({states[0].substr(0, length)});
      EXPECT_FALSE(status.ok()) << length << " bytes of " << states[0].size();
      EXPECT_THAT(std::string(status.message()), HasSubstr("states[0]"));
    }
    EXPECT_THAT(std::string(load({states[0] + "x"}).message()), HasSubstr("damaged"));
  });
}

TEST_P(Damaged, NoChangeOfBytesCrashes) {
  for (const int size : {2, 3}) {  // states of this world's size, and of another world
    const std::vector<std::string> sound = StatesOf(SmallTraining(GetParam(), size));
    OnRankZero(GetParam(), sound, [&](const Load& load) {
      std::mt19937 random(17);
      for (int i = 0; i < 2000; ++i) {
        std::vector<std::string> states = sound;
        std::string& state = states[random() % states.size()];
        // Two of three changes hit the head, which has lengths and numbers.
        const std::size_t reach = i % 3 == 0 ? state.size() : std::min<std::size_t>(state.size(), 300);
        for (unsigned change = 0; change <= random() % 4; ++change) {
          state[random() % reach] = static_cast<char>(random() % 5 == 0 ? 0xff : random());
        }
        if (i % 10 != 0) state = Signed(state.substr(0, state.size() - 8));  // with a right hash
        (void)load(states);
      }
    });
  }
}

TEST_P(Damaged, RandomBytesAreRefused) {
  OnRankZero(GetParam(), StatesOf(SmallTraining(GetParam(), 2)), [&](const Load& load) {
    std::mt19937 random(29);
    for (int i = 0; i < 300; ++i) {
      std::string state(random() % 700, '\0');
      for (char& c : state) c = static_cast<char>(random());
      EXPECT_FALSE(load({state}).ok());
      if (state.size() >= 16) state.replace(0, 16, std::string("TUTS\0\0\0\0\1\0\0\0\0\0\0\0", 16));
      EXPECT_FALSE(load({state}).ok());
      EXPECT_FALSE(load({state, state, state}).ok());
    }
  });
}

TEST_P(Damaged, AnyBitThatIsFlippedIsFound) {
  const std::vector<std::string> states = StatesOf(SmallTraining(GetParam(), 2));
  OnRankZero(GetParam(), states, [&](const Load& load) {
    for (std::size_t byte = 16; byte < states[0].size(); byte += 7) {  // behind magic and version
      std::string state = states[0];
      state[byte] = static_cast<char>(state[byte] ^ (1 << byte % 8));
      EXPECT_THAT(std::string(load({state}).message()), HasSubstr("are not those that were saved")) << byte;
    }
  });
}

// Numbers in the state, such as lengths, that are far too large or negative.
TEST_P(Damaged, ImpossibleNumbersAreRefused) {
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  for (const int size : {2, 3}) {
    const std::vector<std::string> sound = StatesOf(SmallTraining(GetParam(), size));
    OnRankZero(GetParam(), sound, [&](const Load& load) {
      for (const std::int64_t number : {kMax, kMax / 4, -kMax - 1, std::int64_t{-1}, std::int64_t{301}}) {
        SavedState saved = SavedState::Read(sound[0]);
        for (const auto& change : std::vector<std::function<void()>>{
                 [&] { saved.rank = number; }, [&] { saved.size = number; },
                 [&] { saved.buckets[1].ranges[0].dtype = number; }, [&] { saved.buckets[1].ranges[0].kind = number; },
                 [&] { saved.buckets[1].ranges[0].first_element = number; },
                 [&] { saved.buckets[1].ranges[0].divisor = number; },
                 [&] { saved.loss_scale = std::bit_cast<std::int64_t>(-std::abs(static_cast<double>(number))); },
                 [&] { saved.buckets[1].count = number; }}) {
          saved = SavedState::Read(sound[0]);
          change();
          std::vector<std::string> states = sound;
          states[0] = saved.Write();
          EXPECT_FALSE(load(states).ok()) << number << " of " << size << " ranks";
        }
        saved = SavedState::Read(sound[0]);
        saved.buckets[1].ranges[0].bytes.push_back('x');
        std::vector<std::string> states = sound;
        states[0] = saved.Write();
        EXPECT_FALSE(load(states).ok());
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Strategies, Damaged,
                         ::testing::Values("bytegrad:error_feedback=true", "low_precision_decentralized"),
                         [](const auto& strategy) { return strategy.param[0] == 'b' ? "ErrorFeedback" : "Replicas"; });

TEST(ForeignStates, AreRefusedByWhatDoesNotFit) {
  const std::string strategy = "bytegrad:error_feedback=true";
  const std::vector<std::string> two = StatesOf(SmallTraining(strategy, 2));
  const std::vector<std::string> three = StatesOf(SmallTraining(strategy, 3));
  const std::vector<std::string> other_codec = StatesOf(SmallTraining(strategy + ",block=64", 2));
  Training other = SmallTraining(strategy, 2);
  other.model = {.counts = {300, 200}, .bucket_bytes = 4096, .first_bucket_bytes = 4096, .buckets = {{1, 0}}};
  const std::vector<std::string> one_bucket = StatesOf(other);
  other.model = {.counts = {310, 190}, .bucket_bytes = 1240, .first_bucket_bytes = 800, .buckets = {{1}, {0}}};
  const std::vector<std::string> other_sizes = StatesOf(other);
  SavedState later = SavedState::Read(two[1]);
  later.step = 4;
  OnRankZero(strategy, two, [&](const Load& load) {
    const auto expect = [&](const std::vector<std::string>& states, const std::string& what) {
      const absl::Status status = load(states);
      EXPECT_FALSE(status.ok()) << what;
      EXPECT_THAT(std::string(status.message()), HasSubstr(what));
    };
    expect({}, "states is empty");
    expect({""}, "states[0] was not saved by a Synchronizer");
    expect({two[1]}, "rank 0 of 2");
    expect({three[0], three[1]}, "states has 2 entries");
    expect({three[1], three[0], three[2]}, "states[0]: rank is 1, expected 0");
    expect({two[0], three[1]}, "states[1]: size is 3, expected 2");
    expect({two[0], later.Write()}, "states[1]: step is 4, expected 3");
    expect({other_codec[0]}, "load weights that were saved after Flush, and leave the states out");
    expect({one_bucket[0]}, "number of buckets is 1, expected 2");
    expect({other_sizes[0]},
           "bucket 0 has 190 elements, expected 200; the parameters and bucket sizes must be those of the saved state");
    expect(three, "world");  // rank 1 loads its state of a world of 2
    EXPECT_TRUE(load(two).ok());
  });
  OnRankZero(strategy, three, [&](const Load& load) { EXPECT_TRUE(load(three).ok()); });
}

}  // namespace
}  // namespace tutti
