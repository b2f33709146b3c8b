#include "store/message.h"

#include "absl/strings/str_cat.h"
#include "store/byte_order.h"
#include "tutti/store.h"

namespace tutti {
namespace {

absl::Status Malformed(absl::string_view what) {
  return absl::DataLossError(absl::StrCat("malformed store message: ", what));
}

}  // namespace

std::string Encode(const StoreRequest& request) {
  std::string out;
  AppendInteger(static_cast<std::uint8_t>(request.op), out);
  AppendInteger(static_cast<std::uint8_t>(request.wait), out);
  AppendInteger(request.id, out);
  AppendInteger(request.delta, out);
  AppendInteger(static_cast<std::uint32_t>(request.key.size()), out);
  absl::StrAppend(&out, request.key, request.value);
  return out;
}

std::string Encode(const StoreResponse& response) {
  std::string out;
  AppendInteger(response.id, out);
  AppendInteger(static_cast<std::uint32_t>(response.code), out);
  AppendInteger(response.sum, out);
  absl::StrAppend(&out, response.text);
  return out;
}

absl::StatusOr<StoreRequest> ParseRequest(absl::string_view body) {
  StoreRequest request;
  std::uint8_t op = 0, wait = 0;
  std::uint32_t key_bytes = 0;
  if (!TakeInteger(body, op) || !TakeInteger(body, wait) || !TakeInteger(body, request.id) ||
      !TakeInteger(body, request.delta) || !TakeInteger(body, key_bytes)) {
    return Malformed("shorter than its header");
  }
  if (op > static_cast<std::uint8_t>(StoreOp::kCancel)) return Malformed("unknown operation");
  if (wait > 1) return Malformed("wait is neither 0 nor 1");
  if (request.id == kUnasked) return Malformed("request id 0");
  if (key_bytes > body.size()) return Malformed("key longer than the message");
  request.op = static_cast<StoreOp>(op);
  request.wait = wait == 1;
  request.key = std::string(body.substr(0, key_bytes));
  request.value = std::string(body.substr(key_bytes));
  if (request.op != StoreOp::kSet && !request.value.empty()) return Malformed("value where none belongs");
  return request;
}

absl::StatusOr<StoreResponse> ParseResponse(absl::string_view body) {
  StoreResponse response;
  std::uint32_t code = 0;
  if (!TakeInteger(body, response.id) || !TakeInteger(body, code) || !TakeInteger(body, response.sum)) {
    return Malformed("shorter than its header");
  }
  if (code > static_cast<std::uint32_t>(absl::StatusCode::kUnauthenticated)) return Malformed("unknown status code");
  response.code = static_cast<absl::StatusCode>(code);
  response.text = std::string(body);
  return response;
}

}  // namespace tutti
