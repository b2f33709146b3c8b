// Output of several ranks as lines that tell whose they are.
#ifndef TUTTI_BINDINGS_CLI_LAUNCH_OUTPUT_H_
#define TUTTI_BINDINGS_CLI_LAUNCH_OUTPUT_H_

#include <functional>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "tutti/dtype.h"

namespace tutti {

// Cuts what one rank writes into lines and hands them on as "[rank] line\n", each in one call.
class LineTagger {
 public:
  LineTagger(Rank rank, std::function<void(absl::string_view)> write);
  void Add(absl::string_view bytes);
  // Hands on a last line that has no end.
  void Finish();

 private:
  const std::string tag_;
  const std::function<void(absl::string_view)> write_;
  std::string line_;
};

// Writes all of `bytes`; what cannot be written is lost, as with the rank's own output.
void WriteFully(int fd, absl::string_view bytes);

}  // namespace tutti

#endif  // TUTTI_BINDINGS_CLI_LAUNCH_OUTPUT_H_
