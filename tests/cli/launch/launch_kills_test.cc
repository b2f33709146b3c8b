// Kills ranks, the launcher and its supervisor at random moments, by a seed that failures print.
#include <signal.h>

#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cli/launch/launcher_run.h"

namespace tutti {
namespace {

constexpr int kRounds = 100;
constexpr int kMaxRanks = 4;

// A rank with a helper in its process group and a helper in a session of its own; each of the three prints a word.
constexpr char kFamily[] =
    "echo \"<rank $TUTTI_RANK $$>\"; (echo \"<there>\"; exec sleep 1000) & "
    "setsid sh -c 'echo \"<there>\"; exec sleep 1000' & wait";
constexpr int kWords = 3;  // words that a rank and its helpers print

struct Kill {
  const char* what;
  bool rank;  // false: the launcher
  int signal;
};
constexpr Kill kKills[] = {{"a rank by SIGKILL", true, SIGKILL},     {"a rank by SIGSEGV", true, SIGSEGV},
                           {"the launcher by TERM", false, SIGTERM}, {"the launcher by INT", false, SIGINT},
                           {"the launcher by HUP", false, SIGHUP},   {"the launcher by KILL", false, SIGKILL}};

TEST(LaunchKillsSlowTest, LeaveNothingBehindAndAreTold) {
  const unsigned first_seed = testing::UnitTest::GetInstance()->random_seed();
  for (unsigned seed = first_seed; seed < first_seed + kRounds; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](int end) { return static_cast<int>(random() % static_cast<unsigned>(end)); };
    const int ranks = 1 + below(kMaxRanks);
    const Kill& kill = kKills[below(std::ssize(kKills))];
    const int words = 1 + below(kWords * ranks);
    SCOPED_TRACE(absl::StrCat("seed ", seed, ": ", kill.what, ", ", ranks, " ranks, after ", words, " words"));
    Launcher launcher(ranks, kFamily, {below(2) == 0 ? "LAUNCH_TAGS=1" : "UNTAGGED=1"});
    launcher.ReadUntil(">", words);
    if (kill.rank) {
      launcher.ReadUntil("<rank 0", 1);
      launcher.ReadUntil(">", launcher.Count("<"));
      const int rank = NumberAfter("<rank 0 ", launcher.text);
      ASSERT_EQ(::kill(rank, kill.signal), 0);
      EXPECT_EQ(launcher.Finish(), 128 + kill.signal) << launcher.text;
      EXPECT_EQ(launcher.Count("tutti launch: rank 0 was ended by SIG"), 1) << launcher.text;
    } else {
      launcher.Signal(kill.signal);
      EXPECT_EQ(launcher.Finish(), kill.signal == SIGKILL ? -SIGKILL : 128 + kill.signal) << launcher.text;
    }
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace tutti
