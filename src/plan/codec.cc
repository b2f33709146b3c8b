#include "tutti/codec.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace tutti {

absl::StatusOr<const Codec*> FindCodec(absl::string_view name) {
  for (const Codec* codec : AllCodecs()) {
    if (codec->name == name) return codec;
  }
  const std::string valid =
      absl::StrJoin(AllCodecs(), ", ", [](std::string* out, const Codec* codec) { absl::StrAppend(out, codec->name); });
  return absl::NotFoundError(absl::StrCat("unknown codec '", name, "'; valid: ", valid));
}

}  // namespace tutti
