// The text of an error that a rank hears from another rank.
#ifndef TUTTI_BASE_TOLD_BY_H_
#define TUTTI_BASE_TOLD_BY_H_

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tutti/dtype.h"

namespace tutti {

// `cause`, an error that rank `teller` met, in the words in which its peers report the error. A cause that is passed on
// keeps the name of the first teller.
inline absl::Status ToldBy(Rank teller, const absl::Status& cause) {
  if (absl::StrContains(cause.message(), "(told by rank ")) return cause;
  return absl::Status(cause.code(), absl::StrCat(cause.message(), " (told by rank ", teller, ")"));
}

}  // namespace tutti

#endif  // TUTTI_BASE_TOLD_BY_H_
