// When the launcher, or one of its two processes, is killed, no process of the job is left.
#include <signal.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cli/launch/launcher_run.h"

namespace tutti {
namespace {

// Finish returns when no process holds the launcher's output any more, which shows these tests that all have ended.

TEST(LaunchDeathTest, RanksDieWithTheLauncher) {
  Launcher launcher(2, "echo ready; exec sleep 1000");
  launcher.ReadUntil("ready", 2);
  launcher.Signal(SIGKILL);
  EXPECT_EQ(launcher.Finish(), -SIGKILL);
}

// Each rank starts a process in its own process group, one in a session of its own, and orphans.
constexpr char kFamily[] =
    "trap '' TERM HUP; (echo ready; exec sleep 1000) & setsid sh -c 'echo ready; exec sleep 1000' & "
    "sh -c 'sh -c \"echo ready; exec sleep 1000\" & exit 0'; setsid sh -c '(echo ready; exec sleep 1000) & exit 0'; "
    "while :; do sleep 1000; done";
constexpr int kReady = 4;  // times that a rank's processes say that they are ready

TEST(LaunchDeathTest, WhatRanksHaveStartedDiesWithTheLauncher) {
  for (const char* setting : {"LAUNCH_TAGS=1", "UNTAGGED=1"}) {
    Launcher launcher(2, kFamily, {setting});
    launcher.ReadUntil("ready", 2 * kReady);
    launcher.Signal(SIGKILL);
    EXPECT_EQ(launcher.Finish(), -SIGKILL);
  }
}

TEST(LaunchDeathTest, NothingIsLeftOfALauncherThatDiesWhileItStartsRanks) {
  for (int ready : {1, 4, 9}) {
    Launcher launcher(40, "(echo ready; exec sleep 1000) & wait");
    launcher.ReadUntil("ready", ready);
    launcher.Signal(SIGKILL);
    EXPECT_EQ(launcher.Finish(), -SIGKILL);
  }
}

TEST(LaunchDeathTest, TheFrontEndsAllWhenTheSupervisorDies) {
  Launcher launcher(2, absl::StrCat("echo \"<parent $PPID>\"; ", kFamily));
  launcher.ReadUntil("ready", 2 * kReady);
  ASSERT_EQ(::kill(NumberAfter("<parent ", launcher.text), SIGKILL), 0);
  EXPECT_EQ(launcher.Finish(), 128 + SIGKILL);
  EXPECT_THAT(launcher.text, testing::HasSubstr("supervised the ranks was ended by SIGKILL; the ranks are killed\n"));
}

TEST(LaunchDeathTest, WhatRanksHaveStartedEndsWithAJobThatFailed) {
  Launcher launcher(2,
                    "if [ $TUTTI_RANK = 0 ]; then setsid sh -c 'trap \"\" TERM; sleep 1000; sleep 1000' & "
                    "sh -c 'trap \"\" TERM; sleep 1000; sleep 1000' & wait; fi; exit 3");
  EXPECT_EQ(launcher.Finish(), 3);
}

TEST(LaunchDeathTest, WhatRanksHaveLeftBehindGoesOnAfterAJobThatSucceeded) {
  Launcher launcher(1, "sh -c 'echo \"<helper $$>\"; exec sleep 1000' & exit 0");
  launcher.ReadUntil(">", 1);
  EXPECT_EQ(launcher.Wait(), 0);
  EXPECT_EQ(::kill(NumberAfter("<helper ", launcher.text), SIGKILL), 0);
}

}  // namespace
}  // namespace tutti
