// tutti docs algorithms: prints a page of the docs.
#include "bindings/cli/command.h"

#include <cstdio>
#include <memory>

#include "bindings/cli/docs/markdown.h"
#include "bindings/cli/flags.h"
#include "tutti/config.h"

namespace tutti::cli {

void AddDocs(CLI::App& app, Invocation& invocation) {
  CLI::App* docs = app.add_subcommand("docs", "Print a generated page of the docs, as Markdown");
  auto page = std::make_shared<std::string>();
  docs->add_option("page", *page, "algorithms, configuration or schedules")
      ->required()
      ->check(OneOf({"algorithms", "configuration", "schedules"}));
  docs->callback([page, &invocation] {
    invocation.action = [page]() -> absl::StatusOr<int> {
      const std::string text = *page == "algorithms"  ? AlgorithmsMarkdown()
                               : *page == "schedules" ? SchedulesMarkdown()
                                                      : ConfigurationMarkdown();
      std::fputs(text.c_str(), stdout);
      return 0;
    };
  });
}

}  // namespace tutti::cli
