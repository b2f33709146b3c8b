#include "transports/ucx/control.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/string_view.h"

namespace tutti::ucx {
namespace {

constexpr std::uint32_t kMagic = 0x36435454;  // "TTC6"

struct Header {
  std::uint32_t magic;
  std::uint32_t kind;
  std::int32_t from;
  std::int32_t value;  // the meaning depends on the kind: see ControlFrame
  std::uint32_t number;
  std::uint32_t length;
};
static_assert(sizeof(Header) + kMaxCauseBytes == sizeof(ControlFrame));

std::int32_t ValueOf(const Control& control) {
  if (control.kind == Control::Kind::kHello) return control.reads ? 1 : 0;
  return control.kind == Control::Kind::kAnswers ? control.waits_for : control.cause.raw_code();
}

bool HasMessage(Control::Kind kind) { return kind == Control::Kind::kTaken || kind == Control::Kind::kGoodbye; }

}  // namespace

ControlFrame Encode(const Control& control) {
  const absl::string_view text = control.cause.message().substr(0, kMaxCauseBytes);
  const std::uint32_t number = HasMessage(control.kind) ? control.message : control.group;
  const Header header = {kMagic, static_cast<std::uint32_t>(control.kind), control.from, ValueOf(control),
                         number, static_cast<std::uint32_t>(text.size())};
  ControlFrame frame = {};
  std::memcpy(frame.data(), &header, sizeof(header));
  std::copy(text.begin(), text.end(), frame.begin() + sizeof(header));
  return frame;
}

std::optional<Control> Decode(const char* data, std::size_t bytes) {
  if (bytes != sizeof(ControlFrame)) return std::nullopt;
  Header header;
  std::memcpy(&header, data, sizeof(header));
  const bool valid = header.magic == kMagic && header.kind >= 1 &&
                     header.kind <= static_cast<std::uint32_t>(Control::Kind::kTaken) && header.from >= 0 &&
                     header.length <= kMaxCauseBytes;
  if (!valid) return std::nullopt;
  Control control;
  control.kind = static_cast<Control::Kind>(header.kind);
  control.from = header.from;
  if (control.kind == Control::Kind::kAnswers) control.waits_for = header.value;
  if (control.kind == Control::Kind::kHello) control.reads = header.value == 1;
  (HasMessage(control.kind) ? control.message : control.group) = header.number;
  if (control.kind == Control::Kind::kAbort || control.kind == Control::Kind::kNote) {
    if (header.value < 0 || (header.value == 0 && control.kind == Control::Kind::kAbort)) return std::nullopt;
    control.cause = absl::Status(static_cast<absl::StatusCode>(header.value),
                                 absl::string_view(data + sizeof(header), header.length));
  }
  return control;
}

}  // namespace tutti::ucx
