#include "comm/agreement_fields.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tutti/dtype.h"

namespace tutti {
namespace {

// The most differing fields that an error lists; further fields are counted only.
constexpr std::size_t kMaxListed = 8;

bool TakePiece(absl::string_view& packed, std::string& piece) {
  const std::size_t colon = packed.find(':');
  std::size_t length = 0;
  if (colon == packed.npos || !absl::SimpleAtoi(packed.substr(0, colon), &length)) return false;
  packed.remove_prefix(colon + 1);
  if (length > packed.size()) return false;
  piece = std::string(packed.substr(0, length));
  packed.remove_prefix(length);
  return true;
}

struct Field {
  std::string name;
  std::size_t occurrence = 1;  // several fields may have one name: the first, second, … of them
  std::string value;

  bool is(const Field& other) const { return name == other.name && occurrence == other.occurrence; }
};

using Fields = std::vector<Field>;

bool Unpack(absl::string_view packed, Fields& fields) {
  absl::flat_hash_map<std::string, std::size_t> occurrences;
  while (!packed.empty()) {
    Field& field = fields.emplace_back();
    if (!TakePiece(packed, field.name) || !TakePiece(packed, field.value)) return false;
    field.occurrence = ++occurrences[field.name];
  }
  return true;
}

const Field* Find(const Fields& fields, const Field& wanted) {
  const auto found = std::find_if(fields.begin(), fields.end(), [&](const Field& field) { return field.is(wanted); });
  return found == fields.end() ? nullptr : &*found;
}

// The name of a field; of fields of one name, the second and later ones are "name (2)", "name (3)", ….
std::string NameOf(const Field& field) {
  return field.occurrence == 1 ? field.name : absl::StrCat(field.name, " (", field.occurrence, ")");
}

std::string OrNothing(absl::string_view value) { return value.empty() ? "nothing" : std::string(value); }

// The fields of `rank` that differ from those of rank 0.
void Compare(Rank rank, const Fields& fields, const Fields& of_rank_0, std::vector<std::string>& differences) {
  for (const Field& expected : of_rank_0) {
    const Field* const field = Find(fields, expected);
    if (field == nullptr) {
      differences.push_back(
          absl::StrCat("rank ", rank, " has no ", NameOf(expected), ", rank 0 has ", OrNothing(expected.value)));
    } else if (field->value != expected.value) {
      differences.push_back(absl::StrCat("rank ", rank, " has ", NameOf(*field), "=", OrNothing(field->value),
                                         ", rank 0 has ", OrNothing(expected.value)));
    }
  }
  for (const Field& field : fields) {
    if (Find(of_rank_0, field) == nullptr) {
      differences.push_back(absl::StrCat("rank ", rank, " has ", NameOf(field), "=", OrNothing(field.value),
                                         ", rank 0 has no ", NameOf(field)));
    }
  }
}

}  // namespace

// "4:name5:value…": each length comes first, so that any bytes may be in a field.
std::string PackFields(const std::vector<std::pair<std::string, std::string>>& fields) {
  std::string packed;
  for (const auto& [key, value] : fields) {
    absl::StrAppend(&packed, key.size(), ":", key, value.size(), ":", value);
  }
  return packed;
}

std::string FirstValue(absl::string_view packed) {
  std::string name;
  std::string value;
  return TakePiece(packed, name) && TakePiece(packed, value) ? value : "";
}

std::string ListUpTo(std::size_t most, const std::vector<std::string>& items, absl::string_view separator) {
  const std::size_t shown = std::min(items.size(), most);
  std::string text = absl::StrJoin(items.begin(), items.begin() + static_cast<std::ptrdiff_t>(shown), separator);
  if (shown < items.size()) absl::StrAppend(&text, separator, "and ", items.size() - shown, " more");
  return text;
}

absl::Status CompareFields(absl::string_view name, absl::Span<const std::string> packed) {
  std::vector<std::string> differences;
  Fields of_rank_0;
  for (Rank rank = 0; rank < static_cast<Rank>(packed.size()); ++rank) {
    Fields of_rank;
    if (!Unpack(packed[static_cast<std::size_t>(rank)], of_rank)) {
      return absl::DataLossError(absl::StrCat("agreement '", name, "': rank ", rank, " sent no list of fields"));
    }
    if (rank == 0) {
      of_rank_0 = of_rank;
    } else {
      Compare(rank, of_rank, of_rank_0, differences);
    }
  }
  if (differences.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(ListUpTo(kMaxListed, differences, "; "));
}

}  // namespace tutti
