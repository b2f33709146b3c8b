// What the frames of the TCP store carry. Layouts are fixed: integers little-endian, then the key, then the value up
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
  kGet,  // answered when the key is set; `wait` false: at once
  kAdd,
  kDelete,
  kCancel,  // the client has given up the Get of the same id; no answer
};

// op (1), wait (1), id (8), delta (8), key length (4), key, value.
struct StoreRequest {
  StoreOp op = StoreOp::kGet;
  bool wait = false;
  std::uint64_t id = 0;
  std::int64_t delta = 0;
  std::string key = {};
  std::string value = {};
  bool operator==(const StoreRequest&) const = default;
};

// Request id of the answer to the handshake.
inline constexpr std::uint64_t kWelcome = 0;

// id (8), status code (4), sum (8), then the value of Get or the message of an error.
struct StoreResponse {
  std::uint64_t id = kWelcome;
  absl::StatusCode code = absl::StatusCode::kOk;
  std::int64_t sum = 0;
  std::string text = {};
  bool operator==(const StoreResponse&) const = default;
};

std::string Encode(const StoreRequest& request);
std::string Encode(const StoreResponse& response);
// DataLoss says which part is wrong.
absl::StatusOr<StoreRequest> ParseRequest(absl::string_view body);
absl::StatusOr<StoreResponse> ParseResponse(absl::string_view body);

}  // namespace tutti

#endif  // TUTTI_STORE_MESSAGE_H_
