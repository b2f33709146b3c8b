#include "store/limits.h"

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tutti/store.h"

namespace tutti {

absl::Status CheckKey(absl::string_view key) {
  if (key.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("store key is empty, must have 1 to ", kMaxKeyBytes, " bytes"));
  }
  if (key.size() > kMaxKeyBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("store key of ", key.size(), " bytes; at most ", kMaxKeyBytes, " are allowed"));
  }
  return absl::OkStatus();
}

absl::Status CheckKeyAndValue(absl::string_view key, absl::string_view value) {
  if (value.size() > kMaxValueBytes) {
    return absl::InvalidArgumentError(absl::StrCat("store value of ", value.size(), " bytes under key '",
                                                   absl::CHexEscape(key.substr(0, kMaxKeyBytes)), "'; at most ",
                                                   kMaxValueBytes, " are allowed"));
  }
  return CheckKey(key);
}

absl::StatusOr<std::int64_t> AddToValue(absl::string_view key, absl::string_view value, std::int64_t delta) {
  std::int64_t sum = 0;
  if (!value.empty() && !absl::SimpleAtoi(value, &sum)) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot add to store key '", absl::CHexEscape(key), "': its value is no integer"));
  }
  if (__builtin_add_overflow(sum, delta, &sum)) {
    return absl::OutOfRangeError(
        absl::StrCat("adding ", delta, " to store key '", absl::CHexEscape(key), "' leaves the range of 64 bits"));
  }
  return sum;
}

absl::Status KeyNotSet(absl::string_view key) {
  return absl::DeadlineExceededError(absl::StrCat("store key '", absl::CHexEscape(key), "' was not set in time"));
}

absl::Status NoSuchKey(absl::string_view key) {
  return absl::NotFoundError(absl::StrCat("store key '", absl::CHexEscape(key), "' is not set"));
}

}  // namespace tutti
