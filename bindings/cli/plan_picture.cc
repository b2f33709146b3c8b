#include "bindings/cli/plan_picture.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "bindings/cli/write_file.h"
#include "tutti/print.h"

namespace tutti::cli {
namespace {

// What Graphviz calls its formats, too.
constexpr absl::string_view kFormats[] = {"dot", "svg", "png", "pdf"};

absl::string_view FormatOf(absl::string_view file) {
  const std::size_t point = file.rfind('.');
  return point == file.npos ? "" : file.substr(point + 1);
}

// Runs `dot -Tsvg -o picture source`, without a shell.
absl::Status RunDot(const std::string& source, const std::string& picture) {
  std::string arguments[] = {"dot", absl::StrCat("-T", FormatOf(picture)), "-o", picture, source};
  char* argv[] = {arguments[0].data(), arguments[1].data(), arguments[2].data(),
                  arguments[3].data(), arguments[4].data(), nullptr};
  pid_t child = 0;
  if (const int error = posix_spawnp(&child, "dot", nullptr, nullptr, argv, environ); error != 0) {
    return absl::NotFoundError(absl::StrCat("cannot run dot (Debian package graphviz) to draw ", picture, ": ",
                                            std::strerror(error), "; a file that ends in .dot needs no program"));
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status == 0 ? absl::OkStatus() : absl::InternalError(absl::StrCat("dot failed to draw ", picture));
}

}  // namespace

absl::StatusOr<std::string> ParsePictureFile(absl::string_view file) {
  if (std::find(std::begin(kFormats), std::end(kFormats), FormatOf(file)) != std::end(kFormats)) {
    return std::string(file);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("'", file, "' cannot be drawn; the name must end in .", absl::StrJoin(kFormats, ", .")));
}

absl::Status DrawPlans(absl::Span<const Plan> plans, const std::string& file) {
  if (FormatOf(file) == "dot") return WriteFile(file, ToGraphviz(plans));
  const std::string source = absl::StrCat(file, ".dot");
  if (absl::Status written = WriteFile(source, ToGraphviz(plans)); !written.ok()) return written;
  absl::Status drawn = RunDot(source, file);
  std::remove(source.c_str());
  return drawn;
}

}  // namespace tutti::cli
