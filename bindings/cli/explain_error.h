// Says what was wrong with a command line, and what would be right.
#ifndef TUTTI_BINDINGS_CLI_EXPLAIN_ERROR_H_
#define TUTTI_BINDINGS_CLI_EXPLAIN_ERROR_H_

#include <string>

#include "CLI/CLI.hpp"

namespace tutti::cli {

std::string ExplainError(const CLI::App& app, const CLI::ParseError& error);

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_EXPLAIN_ERROR_H_
