// Lists of named values, which must be equal on all ranks: how lists travel and how they are compared.
#ifndef TUTTI_COMM_AGREEMENT_FIELDS_H_
#define TUTTI_COMM_AGREEMENT_FIELDS_H_

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tutti {

std::string PackFields(const std::vector<std::pair<std::string, std::string>>& fields);

// The value of the first field of a packed list; empty where `packed` is no list, or a list without fields.
std::string FirstValue(absl::string_view packed);

// Compares the packed lists of all ranks, in rank order, with that of rank 0. InvalidArgument names the ranks and
// fields that differ: "rank 2 has bucket_bytes=1048576, rank 0 has 26214400". Of fields that have one name, the first
// is compared with the first, the second with the second, and so on. DataLoss, with the `name` of the agreement, when
// an entry of `packed` is no list. Equal lists give equal results on every rank.
absl::Status CompareFields(absl::string_view name, absl::Span<const std::string> packed);

// The first `most` items, and how many more there are.
std::string ListUpTo(std::size_t most, const std::vector<std::string>& items, absl::string_view separator);

}  // namespace tutti

#endif  // TUTTI_COMM_AGREEMENT_FIELDS_H_
