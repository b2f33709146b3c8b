#include "bindings/cli/plan_picture.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "bindings/cli/write_file.h"
#include "tutti/print.h"

namespace tutti::cli {
namespace {

// Runs `dot -Tsvg -o svg source`, without a shell.
absl::Status RunDot(const std::string& source, const std::string& svg) {
  std::string arguments[] = {"dot", "-Tsvg", "-o", svg, source};
  char* argv[] = {arguments[0].data(), arguments[1].data(), arguments[2].data(),
                  arguments[3].data(), arguments[4].data(), nullptr};
  pid_t child = 0;
  if (const int error = posix_spawnp(&child, "dot", nullptr, nullptr, argv, environ); error != 0) {
    return absl::NotFoundError(absl::StrCat("cannot run dot (Debian package graphviz) to draw ", svg, ": ",
                                            std::strerror(error), "; a file that ends in .dot needs no program"));
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status == 0 ? absl::OkStatus() : absl::InternalError(absl::StrCat("dot failed to draw ", svg));
}

}  // namespace

absl::Status DrawPlans(absl::Span<const Plan> plans, const std::string& file) {
  if (absl::EndsWith(file, ".dot")) return WriteFile(file, ToGraphviz(plans));
  if (!absl::EndsWith(file, ".svg")) {
    return absl::InvalidArgumentError(absl::StrCat("--draw ", file, ": the name must end in .dot or .svg"));
  }
  const std::string source = absl::StrCat(file, ".dot");
  if (absl::Status written = WriteFile(source, ToGraphviz(plans)); !written.ok()) return written;
  absl::Status drawn = RunDot(source, file);
  std::remove(source.c_str());
  return drawn;
}

}  // namespace tutti::cli
