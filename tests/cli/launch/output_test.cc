// What becomes of the ranks' output when the launcher tags it.
#include "bindings/cli/launch/output.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cli/launch/launcher_run.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

// A pipe of one page, which is soon full.
class SmallPipe {
 public:
  explicit SmallPipe(int flags = 0) {
    EXPECT_EQ(::pipe2(ends_, O_CLOEXEC | flags), 0);
    EXPECT_GE(::fcntl(ends_[1], F_SETPIPE_SZ, 4096), 4096);
  }
  ~SmallPipe() {
    CloseReader();
    CloseWriter();
  }
  SmallPipe(const SmallPipe&) = delete;
  SmallPipe& operator=(const SmallPipe&) = delete;

  int writer() const { return ends_[1]; }
  void CloseReader() { Close(ends_[0]); }
  void CloseWriter() { Close(ends_[1]); }
  // All that is written until no writer is left; "" when a writer is left after the longest wait.
  std::string ReadAll() {
    CloseWriter();
    std::string text;
    std::array<char, 4096> part;
    pollfd readable{ends_[0], POLLIN, 0};
    while (::poll(&readable, 1, 60'000) > 0) {
      const ssize_t got = ::read(ends_[0], part.data(), part.size());
      if (got <= 0) return text;
      text.append(part.data(), static_cast<std::size_t>(got));
    }
    return "";
  }

 private:
  static void Close(int& fd) {
    if (fd >= 0) ::close(fd);
    fd = -1;
  }
  int ends_[2] = {-1, -1};
};

TEST(LaunchTest, LinesAreTagged) {
  Launcher launcher(2, "echo out; echo err >&2; printf unfinished", {"LAUNCH_TAGS=1"});
  EXPECT_EQ(launcher.Finish(), 0);
  for (const char* line :
       {"[0] out\n", "[0] err\n", "[0] unfinished\n", "[1] out\n", "[1] err\n", "[1] unfinished\n"}) {
    EXPECT_THAT(launcher.text, HasSubstr(line));
  }
}

// The pipe of the reader is non-blocking in one run, and blocking in the next.
TEST(LaunchTest, NothingIsLostOnASlowReader) {
  std::string expected;
  for (int i = 1; i <= 200'000; ++i) absl::StrAppend(&expected, "[0] ", i, "\n");
  for (int flags : {O_NONBLOCK, 0}) {
    SmallPipe out(flags);
    Launcher launcher(1, "seq 1 200000", {"LAUNCH_TAGS=1"}, out.writer());
    EXPECT_EQ(out.ReadAll(), expected);
    EXPECT_EQ(launcher.Finish(), 0) << launcher.text;
  }
}

TEST(LaunchSlowTest, AReaderThatNeverReadsHidesNoFailure) {
  SmallPipe out;
  // Rank 1 prints more than the pipe takes, and less than the launcher and the pipe take together: its write ends.
  Launcher launcher(2, absl::StrCat("if [ $TUTTI_RANK = 1 ]; then seq 1 5000; exit 7; fi; ", kForever),
                    {"LAUNCH_TAGS=1", "LAUNCH_IMPATIENT=1", "LAUNCH_STOPPED_CLOCK=1"}, out.writer());
  EXPECT_EQ(launcher.Finish(), 7) << launcher.text;
  EXPECT_THAT(launcher.text, HasSubstr("rank 1 exited with code 7; ending the others\n"));
  EXPECT_THAT(launcher.text, HasSubstr("output of the ranks is lost: nobody read it within 50ms\n"));
}

TEST(LaunchSlowTest, AReaderThatNeverReadsDoesNotKeepTheLauncherFromSignals) {
  SmallPipe out;
  Launcher launcher(2, "echo started >&2; exec yes", {"LAUNCH_TAGS=1", "LAUNCH_IMPATIENT=1"}, out.writer());
  launcher.ReadUntil("started", 2);
  launcher.Signal(SIGTERM);
  EXPECT_EQ(launcher.Finish(), 128 + SIGTERM) << launcher.text;
}

TEST(LaunchSlowTest, AJobThatSucceededWaitsForItsReaderUntilItIsTold) {
  SmallPipe out;
  Launcher launcher(1, "seq 1 2000; echo ended >&2", {"LAUNCH_TAGS=1", "LAUNCH_IMPATIENT=1"}, out.writer());
  launcher.ReadUntil("ended", 1);
  launcher.Signal(SIGINT);
  EXPECT_NE(launcher.Finish(), 0) << launcher.text;
  EXPECT_THAT(launcher.text, HasSubstr("is lost"));
}

TEST(LaunchTest, WhoWritesForNobodyIsToldAsWithoutTags) {
  SmallPipe out;
  out.CloseReader();
  Launcher launcher(2, "exec yes", {"LAUNCH_TAGS=1"}, out.writer());
  EXPECT_EQ(launcher.Finish(), 128 + SIGPIPE);
  EXPECT_THAT(launcher.text, HasSubstr("cannot write to standard output: Broken pipe; "));
  EXPECT_THAT(launcher.text, HasSubstr("was ended by SIGPIPE"));
}

TEST(LaunchTest, AFullDiskIsReportedAndEndsNoRank) {
  const int full = ::open("/dev/full", O_WRONLY | O_CLOEXEC);
  ASSERT_GE(full, 0);
  Launcher launcher(1, "seq 1 100000 && echo went on >&2", {"LAUNCH_TAGS=1"}, full);
  ::close(full);
  EXPECT_EQ(launcher.Finish(), 1);
  EXPECT_THAT(launcher.text, HasSubstr("cannot write to standard output: No space left on device; "));
  EXPECT_THAT(launcher.text, HasSubstr("[0] went on\n"));
}

TEST(LineTaggerTest, CutsLinesWhereverTheBytesAreCut) {
  std::string written;
  LineTagger tagger(12, [&](absl::string_view line) { absl::StrAppend(&written, line); });
  for (absl::string_view bytes : {"a", "b\nc", "\n\n10%\r20%\r", "end"}) tagger.Add(bytes);
  tagger.Finish();
  tagger.Finish();
  EXPECT_EQ(written, "[12] ab\n[12] c\n[12] \n[12] 10%\r[12] 20%\r[12] end\n");
}

TEST(LineTaggerTest, AReturnAndANewlineAreOneEnd) {
  std::string written;
  LineTagger tagger(0, [&](absl::string_view line) { absl::StrAppend(&written, line); });
  for (absl::string_view bytes : {"a\r\nb\r\n", "\n", "c\r", "\nd\r", "", "\n", "e\r", "\n\n", "f\r", "\n", "\n"}) {
    tagger.Add(bytes);
  }
  EXPECT_EQ(written, "[0] a\r\n[0] b\r\n[0] \n[0] c\r\n[0] d\r\n[0] e\r\n[0] \n[0] f\r\n[0] \n");
}

TEST(LineTaggerTest, ALongLineStaysOneLine) {
  const std::string line(LineTagger::kMaxLineBytes - 1, 'x');
  std::string written;
  LineTagger tagger(0, [&](absl::string_view text) { absl::StrAppend(&written, text); });
  for (std::size_t at = 0; at < line.size(); at += 10000) tagger.Add(line.substr(at, 10000));
  tagger.Add("\n");
  EXPECT_TRUE(written == absl::StrCat("[0] ", line, "\n")) << written.size() << " bytes";
}

TEST(LineTaggerTest, ALineWithoutEndIsCut) {
  const std::string part(LineTagger::kMaxLineBytes / 4, 'x');
  std::vector<std::string> lines;
  LineTagger tagger(0, [&](absl::string_view line) { lines.emplace_back(line); });
  for (int i = 0; i < 10; ++i) tagger.Add(part);
  EXPECT_THAT(lines, ::testing::Each(absl::StrCat("[0] ", part, part, part, part, "\n")));
  EXPECT_EQ(lines.size(), 2U);
}

TEST(OutletTest, WritesWhatTheReaderTakesAndKeepsTheRest) {
  SmallPipe pipe;
  Outlet outlet(pipe.writer());
  outlet.Add(std::string(10'000, 'x'));
  EXPECT_TRUE(outlet.Write());
  EXPECT_EQ(outlet.waiting(), 10'000U - 4096U);
  EXPECT_FALSE(outlet.Write()) << "the pipe is full";
  EXPECT_EQ(outlet.error(), 0);
  pipe.CloseReader();
  EXPECT_EQ(::signal(SIGPIPE, SIG_IGN), SIG_DFL);
  EXPECT_FALSE(outlet.Write());
  (void)::signal(SIGPIPE, SIG_DFL);
  EXPECT_EQ(outlet.error(), EPIPE);
  EXPECT_EQ(outlet.waiting(), 0U);
}

}  // namespace
}  // namespace tutti
