#include "store/frame.h"

#include "absl/strings/str_cat.h"
#include "store/byte_order.h"

namespace tutti {
namespace {

// The MAC of a body that is `body` and `rest`, one after the other.
Mac FrameMac(const Key& key, std::uint64_t sequence, absl::string_view body, absl::string_view rest) {
  std::string header;
  AppendInteger(sequence, header);
  AppendInteger(static_cast<std::uint32_t>(body.size() + rest.size()), header);
  return Hmac(key, {header, body, rest});
}

}  // namespace

std::string FrameWriter::Seal(absl::string_view body, absl::string_view rest) {
  std::string frame;
  frame.reserve(kFrameHeaderBytes + body.size());
  AppendInteger(static_cast<std::uint32_t>(body.size() + rest.size()), frame);
  absl::StrAppend(&frame, View(FrameMac(key_, sequence_++, body, rest)), body);
  return frame;
}

absl::StatusOr<std::optional<std::string>> FrameReader::Next() {
  absl::string_view rest = absl::string_view(buffer_).substr(consumed_);
  std::uint32_t length = 0;
  if (!TakeInteger(rest, length)) return std::nullopt;
  if (length > kMaxFrameBytes) {
    return absl::DataLossError(
        absl::StrCat("store frame of ", length, " bytes; at most ", kMaxFrameBytes, " are allowed"));
  }
  if (rest.size() < sizeof(Mac) + length) return std::nullopt;
  const absl::string_view mac = rest.substr(0, sizeof(Mac));
  const absl::string_view body = rest.substr(sizeof(Mac), length);
  if (!SameMac(mac, FrameMac(key_, sequence_, body, "")))
    return absl::DataLossError(
        "store frame has a wrong authentication code: bytes were changed, or the sender does not hold the job secret");
  ++sequence_;
  std::string result(body);
  consumed_ += kFrameHeaderBytes + length;
  if (consumed_ == buffer_.size()) {
    buffer_.clear();
    consumed_ = 0;
  } else if (consumed_ > (64 << 10)) {
    buffer_.erase(0, consumed_);
    consumed_ = 0;
  }
  return result;
}

}  // namespace tutti
