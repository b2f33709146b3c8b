// Encodes, decodes and adds a message of every codec, with each option that costs time, under callgrind, which writes a
// file for each of these with the number of instructions that it took. instructions.py runs this program.
#include <valgrind/callgrind.h>

#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "hwy/targets.h"
#include "tests/codecs/inputs.h"
#include "tutti/codec.h"

namespace tutti {
namespace {

// The default block of topk, and many blocks of the other codecs.
constexpr std::int64_t kCount = 65536;

// The second of two calls is counted: the first chooses the instruction set.
template <typename Call>
void Count(const std::string& name, const Call& call) {
  call();
  CALLGRIND_ZERO_STATS;
  call();
  CALLGRIND_DUMP_STATS_AT(name.c_str());
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

int Main() {
  hwy::SetSupportedTargetsForTest(HWY_AVX2);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
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
  return 0;
}

}  // namespace
}  // namespace tutti

int main() {
  if ((hwy::SupportedTargets() & HWY_AVX2) == 0) {
    std::puts("this processor has no AVX2, of which the figures are");
    return 77;
  }
  return tutti::Main();
}
