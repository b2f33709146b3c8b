// Pages of the docs that are printed from the records of the library, so that the pages list what is built.
#ifndef TUTTI_BINDINGS_CLI_DOCS_MARKDOWN_H_
#define TUTTI_BINDINGS_CLI_DOCS_MARKDOWN_H_

#include <string>

namespace tutti::cli {

std::string AlgorithmsMarkdown();  // docs/algorithms.md
std::string SchedulesMarkdown();   // docs/schedules.md

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_DOCS_MARKDOWN_H_
