// Extensions: schedules, codecs, algorithms and peer selections that are not Tutti's own. Each is one file (schedule.h,
// codec.h, algorithm.h, peer_selection.h), the same as it would be in Tutti's tree, and CMake makes an extension of
// such files, after find_package(tutti):
//
//   add_executable(train train.cc)
//   tutti_add_extensions(train mine.cc)   # known to the program train
//
//   add_library(mine MODULE)
//   tutti_add_extensions(mine mine.cc)    # in a library that programs load: LoadExtension, TUTTI_EXTENSIONS
//
// From then on the names work wherever Tutti takes one: a schedule competes by its predicted time, plans are verified
// before they run, and errors list the names. docs/extensions.md is the guide.
#ifndef TUTTI_EXTENSION_H_
#define TUTTI_EXTENSION_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tutti/algorithm.h"
#include "tutti/codec.h"
#include "tutti/peer_selection.h"
#include "tutti/schedule.h"

namespace tutti {

// What a program or library adds. Records, and the arrays that list them, live as long as the process.
struct Extension {
  absl::string_view name;           // of the program or library, for errors
  absl::string_view tutti_version;  // the version of the headers that the records were compiled with
  absl::Span<const Schedule* const> schedules = {};
  absl::Span<const Codec* const> codecs = {};
  absl::Span<const Algorithm* const> algorithms = {};
  absl::Span<const PeerSelection* const> peer_selections = {};
};

// Adds all that `extension` has, or nothing. All ranks must have the same extensions when they make a communicator.
// Thread-safe. FailedPrecondition when the extension was compiled with another version of Tutti, or when this process
// has made a communicator, whose ranks choose among what they had then; AlreadyExists when a name is taken;
// InvalidArgument when a name is no name, a function of a record is missing, the fields of an algorithm's record do not
// go together, or the extension is empty. Errors name the extension and the record. The file that tutti_add_extensions
// writes calls RegisterExtension before main.
absl::Status RegisterExtension(const Extension& extension);

// Loads the library `file`, a path, and registers its extension; the library stays loaded. Loading a library once more
// changes nothing. Thread-safe. The errors are those of RegisterExtension, and NotFound when there is no such file,
// InvalidArgument when the file is no library or has no extension; they name the file. The libraries that
// TUTTI_EXTENSIONS lists, with colons between them, are loaded when a process first looks up a name.
absl::Status LoadExtension(const std::string& file);

// OK, or why an extension of the program, or of TUTTI_EXTENSIONS, could not be registered: the first such error of this
// process. Communicator::Create returns it too. Thread-safe.
absl::Status ExtensionStatus();

// All that extensions have added, such as "codec mine, schedule all_gather:mine", in alphabetical order; empty when
// there is none. All ranks of a communicator have the same. Thread-safe.
std::string ExtensionNames();

namespace internal {

class Registry;

// How a library shows its extension: by the symbol `tutti_extension`. The version comes first in every version of
// Tutti.
struct ExtensionEntry {
  const char* tutti_version;
  // Registers the extension with the Tutti that has loaded the library. The library has a Tutti of its own, which looks
  // up names there from then on.
  absl::Status (*attach)(Registry& registry);
};

// Registers with `registry`, which takes the place of this Tutti's own.
absl::Status AttachExtension(const Extension& extension, Registry& registry);

// Registers a program's own extension; an error is returned by ExtensionStatus.
bool RegisterBeforeMain(const Extension& extension);

}  // namespace internal
}  // namespace tutti

// These two end the file that tutti_add_extensions writes: for a program, and for a library that programs load.
#define TUTTI_EXTENSION_OF_PROGRAM(extension) \
  [[maybe_unused]] static const bool tutti_extension_is_registered = ::tutti::internal::RegisterBeforeMain(extension)

#define TUTTI_EXTENSION_OF_LIBRARY(extension)                                                                         \
  extern "C" {                                                                                                        \
  __attribute__((visibility("default"))) extern const ::tutti::internal::ExtensionEntry tutti_extension;              \
  constinit const ::tutti::internal::ExtensionEntry tutti_extension = {                                               \
      (extension).tutti_version.data(),                                                                               \
      [](::tutti::internal::Registry& registry) { return ::tutti::internal::AttachExtension(extension, registry); }}; \
  }                                                                                                                   \
  static_assert(true)

#endif  // TUTTI_EXTENSION_H_
