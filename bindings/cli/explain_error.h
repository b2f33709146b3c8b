// What to tell a user about a command line that was not understood: what is wrong, and what would be right.
#ifndef TUTTI_BINDINGS_CLI_EXPLAIN_ERROR_H_
#define TUTTI_BINDINGS_CLI_EXPLAIN_ERROR_H_

#include <string>

#include "CLI/CLI.hpp"

namespace tutti::cli {

std::string ExplainError(const CLI::App& app, const CLI::ParseError& error);

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_EXPLAIN_ERROR_H_
