#include "bindings/cli/launch/signals.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gtest/gtest.h"

namespace tutti {
namespace {

TEST(HandledSignalsTest, AreReadOneByOne) {
  const HandledSignals signals;
  EXPECT_EQ(signals.Next(), 0);
  for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2}) {
    ASSERT_EQ(::raise(signal), 0);
    EXPECT_EQ(signals.Next(), signal);
  }
  EXPECT_EQ(signals.Next(), 0);
}

TEST(HandledSignalsTest, WhatNohupIgnoresStaysIgnored) {
  ASSERT_EQ(::signal(SIGHUP, SIG_IGN), SIG_DFL);
  {
    const HandledSignals signals;
    ASSERT_EQ(::raise(SIGHUP), 0);
    EXPECT_EQ(signals.Next(), 0);
    ASSERT_EQ(::raise(SIGTERM), 0);
    EXPECT_EQ(signals.Next(), SIGTERM);
  }
  EXPECT_EQ(::signal(SIGHUP, SIG_DFL), SIG_IGN);
}

TEST(HandledSignalsTest, ChildrenLeaveAnExitCodeAlsoWhereTheCallerIgnoredTheirEnd) {
  ASSERT_EQ(::signal(SIGCHLD, SIG_IGN), SIG_DFL);
  {
    const HandledSignals signals;
    const pid_t child = ::fork();
    if (child == 0) ::_exit(3);
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(WEXITSTATUS(status), 3);
  }
  EXPECT_EQ(::signal(SIGCHLD, SIG_DFL), SIG_IGN);
}

}  // namespace
}  // namespace tutti
