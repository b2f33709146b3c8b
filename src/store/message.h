// The bodies of the frames of the TCP store. Layouts are fixed: integers little-endian, then the key, then the value up
// to the end of the frame.
#ifndef TUTTI_STORE_MESSAGE_H_
#define TUTTI_STORE_MESSAGE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tutti {

enum class StoreOp : std::uint8_t {
  kSet,
  kGet,  // answered when the key is set; with `wait` false: at once, with NotFound when it is not set
  kAdd,
  kDelete,
  kCancel,  // the client has given up the Get of the same id; no answer
};

// A request on the wire: op (1 byte), wait (1), id (8), delta (8), key length (4), key, value.
struct StoreRequest {
  StoreOp op = StoreOp::kGet;
  bool wait = false;
  std::uint64_t id = 0;
  std::int64_t delta = 0;
  std::string key = {};
  std::string value = {};
  bool operator==(const StoreRequest&) const = default;
};

// The id of messages that no request has asked for. The first is the welcome, which answers the handshake; its `sum` is
// the rank that serves, or kNoRank. Each later one is news of rank `sum`: Unavailable when the rank is gone, OK when
// the rank has come again.
inline constexpr std::uint64_t kUnasked = 0;
inline constexpr std::int64_t kNoRank = -1;

// A response on the wire: id (8 bytes), status code (4), sum (8), then the value of Get or the message of an error.
struct StoreResponse {
  std::uint64_t id = kUnasked;
  absl::StatusCode code = absl::StatusCode::kOk;
  std::int64_t sum = 0;
  std::string text = {};
  bool operator==(const StoreResponse&) const = default;
};

std::string Encode(const StoreRequest& request);
std::string Encode(const StoreResponse& response);
// Parse the body of a frame; DataLoss says which part is wrong.
absl::StatusOr<StoreRequest> ParseRequest(absl::string_view body);
absl::StatusOr<StoreResponse> ParseResponse(absl::string_view body);

}  // namespace tutti

#endif  // TUTTI_STORE_MESSAGE_H_
