#include "bindings/cli/plan/graph.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "bindings/cli/write_file.h"
#include "tutti/print.h"

namespace tutti::cli {
namespace {

// The formats of pictures, with Graphviz's names, which are also the ends of file names.
constexpr absl::string_view kFormats[] = {"dot", "svg", "png", "pdf"};

constexpr absl::string_view kWhatHelps =
    "take fewer --ranks, a smaller size or a larger --segment, write the graph to a file that ends in .dot, or take "
    "--draw, which folds steps";

// The exit code with which a shell says that there is no such program.
constexpr int kNotStarted = 127;

absl::string_view FormatOf(absl::string_view file) {
  const std::size_t point = file.rfind('.');
  return point == file.npos ? "" : file.substr(point + 1);
}

// A file without a name, which vanishes with its last descriptor; close-on-exec.
class UnnamedFile {
 public:
  explicit UnnamedFile(const std::string& text) : fd_(::memfd_create("tutti-plan", MFD_CLOEXEC)) {
    std::size_t written = 0;
    while (written < text.size()) {
      const ssize_t taken = ::write(fd_, text.data() + written, text.size() - written);
      if (taken <= 0) break;
      written += static_cast<std::size_t>(taken);
    }
    complete_ = fd_ >= 0 && written == text.size() && ::lseek(fd_, 0, SEEK_SET) == 0;
  }
  ~UnnamedFile() { ::close(fd_); }
  UnnamedFile(const UnnamedFile&) = delete;
  UnnamedFile& operator=(const UnnamedFile&) = delete;

  int fd() const { return fd_; }
  bool complete() const { return complete_; }
  std::string FirstLine() const {
    std::string line(200, '\0');
    const ssize_t got = ::pread(fd_, line.data(), line.size(), 0);
    line.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    return line.substr(0, line.find('\n'));
  }

 private:
  const int fd_;
  bool complete_ = false;
};

// Makes the child `dot`, which a timer ends after `limit`; the timer outlives exec, and the death of the parent.
[[noreturn]] void BecomeDot(char** arguments, int in, int err, absl::Duration limit) {
  const itimerval once{.it_interval = {}, .it_value = absl::ToTimeval(limit)};
  ::setitimer(ITIMER_REAL, &once, nullptr);
  ::dup2(in, STDIN_FILENO);
  ::dup2(err, STDERR_FILENO);
  ::execvp(arguments[0], arguments);
  ::_exit(kNotStarted);
}

// Runs `dot -Tsvg -o picture`, without a shell.
absl::Status RunDot(const std::string& source, const std::string& picture, absl::Duration limit) {
  std::string arguments[] = {"dot", absl::StrCat("-T", FormatOf(picture)), "-o", picture};
  char* argv[] = {arguments[0].data(), arguments[1].data(), arguments[2].data(), arguments[3].data(), nullptr};
  const UnnamedFile in(source), err("");
  if (!in.complete() || !err.complete()) return absl::ErrnoToStatus(errno, "cannot hand the plans to dot");
  const pid_t child = ::fork();
  if (child < 0) return absl::ErrnoToStatus(errno, "cannot start dot");
  if (child == 0) BecomeDot(argv, in.fd(), err.fd(), limit);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (status == 0) return absl::OkStatus();
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNotStarted) {
    return absl::NotFoundError(absl::StrCat("cannot run dot (Debian package graphviz) to draw ", picture,
                                            "; a file that ends in .dot needs no program"));
  }
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM) {
    return absl::DeadlineExceededError(
        absl::StrCat("dot did not draw ", picture, " within ", absl::FormatDuration(limit), "; ", kWhatHelps));
  }
  return absl::InternalError(absl::StrCat("dot failed to draw ", picture, ": ", err.FirstLine()));
}

}  // namespace

absl::StatusOr<std::string> ParseGraphFile(absl::string_view file) {
  if (std::find(std::begin(kFormats), std::end(kFormats), FormatOf(file)) != std::end(kFormats)) {
    return std::string(file);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("'", file, "' cannot be drawn; the name must end in .", absl::StrJoin(kFormats, ", .")));
}

absl::Status CheckDrawable(absl::Span<const Plan> plans, const std::string& file) {
  if (FormatOf(file) == "dot") return absl::OkStatus();
  std::int64_t steps = 0, arrows = 0;
  for (const Plan& plan : plans) {
    steps += std::ssize(plan.steps);
    for (const Step& step : plan.steps) {
      const bool joins_peer =
          step.kind == StepKind::kRecv || step.kind == StepKind::kWait || step.kind == StepKind::kNative;
      arrows += step.num_deps + (joins_peer ? 1 : 0);
    }
  }
  if (steps <= kMaxDrawnSteps && arrows <= kMaxDrawnArrows) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--draw-steps ", file, ": the plans of all ranks have ", steps,
                                                 " steps and ", arrows, " arrows, a graph has at most ", kMaxDrawnSteps,
                                                 " and ", kMaxDrawnArrows, "; ", kWhatHelps));
}

absl::Status DrawSteps(absl::Span<const Plan> plans, const std::string& file, absl::Duration limit) {
  if (FormatOf(file) == "dot") return WriteFile(file, ToGraphviz(plans));
  if (absl::Status drawable = CheckDrawable(plans, file); !drawable.ok()) return drawable;
  return RunDot(ToGraphviz(plans), file, limit);
}

}  // namespace tutti::cli
