// A command line as text.
#ifndef TUTTI_BINDINGS_CLI_COMMAND_LINE_H_
#define TUTTI_BINDINGS_CLI_COMMAND_LINE_H_

#include <string>
#include <vector>

namespace tutti::cli {

// The words of a command line, quoted where a shell would read a word otherwise.
std::string CommandLine(const std::vector<std::string>& words);

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_COMMAND_LINE_H_
