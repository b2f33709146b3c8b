// The instructions that codecs take to encode, decode and add a message, with each option that costs time, per element.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/codecs/inputs.h"
#include "tests/harness/count_instructions.h"
#include "tutti/codec.h"

namespace tutti {
namespace {

// The default block of topk, and many blocks of the other codecs.
constexpr std::int64_t kCount = 65536;

template <typename Call>
void Count(const std::string& name, const Call& call) {
  call();
  CountInstructions(name, kCount, call);
}

void CountCodec(const CodecChoice& choice) {
  const Codec& codec = *choice.codec;
  const CodecOptions& options = choice.options;
  std::vector<float> values = MakeValues(Input::kBellShaped, kCount);
  std::vector<std::uint8_t> message(codec.encoded_bytes(kCount, options));
  const std::string name = ToString(choice);
  Count(absl::StrCat(name, " encode"), [&] { codec.encode(values, options, 0, absl::MakeSpan(message)); });
  for (const bool accumulate : {false, true}) {
    Count(absl::StrCat(name, accumulate ? " add" : " decode"),
          [&] { codec.decode(message, options, accumulate, absl::MakeSpan(values)).IgnoreError(); });
  }
}

void CountAll() {
  for (const Codec* codec : AllCodecs()) {
    CountCodec({codec, codec->defaults});
    CodecOptions stochastic = codec->defaults;
    stochastic.rounding = Rounding::kStochastic;
    CodecOptions rotated = codec->defaults;
    rotated.rotation = true;
    for (const CodecOptions& options : {stochastic, rotated}) {
      if (codec->validate(options).ok()) CountCodec({codec, options});
    }
  }
}

}  // namespace
}  // namespace tutti

int main() { return tutti::CountOnAvx2(tutti::CountAll); }
