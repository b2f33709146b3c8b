// What `tutti check` is trying, in case that what it tries crashes or never returns.
#ifndef TUTTI_BINDINGS_CLI_CHECK_CURRENT_CASE_H_
#define TUTTI_BINDINGS_CLI_CHECK_CURRENT_CASE_H_

#include "absl/strings/string_view.h"

namespace tutti::cli {

// Lets a signal by which a program crashes, is interrupted or told to end (SIGTERM) say on standard error what is being
// tried, before it ends the process. Of the calling thread this is so also where its stack is exhausted.
void TellCaseOnSignals();

// Says which name is being checked, on any thread that has no case of its own. One thread calls it, between checks.
void SetCheckedName(absl::string_view name);
// Says which case of that name the calling thread tries from now on.
void SetCurrentCase(absl::string_view what);

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_CHECK_CURRENT_CASE_H_
