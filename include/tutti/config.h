// The configuration of this process as users see it: `tutti info` and docs/configuration.md are made from it.
#ifndef TUTTI_CONFIG_H_
#define TUTTI_CONFIG_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tutti {

// One TUTTI_* environment variable.
struct ConfigEntry {
  std::string name;    // "TUTTI_TIMEOUT"
  std::string value;   // in force; "(set)" in place of a secret
  std::string origin;  // "default" or "environment"
  std::string doc;     // what the variable does, in one or two sentences
};

// Every variable that Tutti reads, in the order of the docs. InvalidArgument names a variable whose value is wrong.
absl::StatusOr<std::vector<ConfigEntry>> EffectiveConfig();

// The text of docs/configuration.md: every variable with its default. Independent of the environment.
std::string ConfigurationMarkdown();

// One sentence for each TUTTI_* variable in the environment that Tutti does not know, with the nearest name.
std::vector<std::string> ConfigWarnings();

}  // namespace tutti

#endif  // TUTTI_CONFIG_H_
