// What codecs of Tutti's tree have beside a scheme (tutti/codecs/block_message.h): kernels for GPUs, which are given
// the layout of a message, and kernels that take all blocks of a message at once.
#ifndef TUTTI_ALGORITHMS_CODECS_BLOCK_LAYOUT_H_
#define TUTTI_ALGORITHMS_CODECS_BLOCK_LAYOUT_H_

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/message_layout.h"
#include "tutti/codec.h"
#include "tutti/codecs/block_message.h"

namespace tutti::codecs {

// Codec::layout of a scheme that has
//   static kernels::Coder CoderOf(const CodecOptions& options);
// and, when it does not send all elements of a block,
//   static std::int64_t Kept(std::int64_t elements, const CodecOptions& options);
template <class Scheme>
kernels::MessageLayout LayoutOf(std::int64_t count, const CodecOptions& options) {
  using Message = BlockMessage<Scheme>;
  kernels::MessageLayout layout = {.stochastic = options.rounding == Rounding::kStochastic,
                                   .header_bytes = kHeaderBytes,
                                   .count = count,
                                   .seed = options.seed};
  WriteHeader(Message::HeaderOf(count, options), layout.header);
  if (Message::IsRaw(count, options)) {
    layout.CutSingles(sizeof(float));
    return layout;
  }
  layout.coder = Scheme::CoderOf(options);
  layout.block = Message::BlockElements(count, options);
  layout.blocks = Message::Blocks(count, options);
  layout.numbers_bytes = Message::kNumbersBytes;
  layout.code_bytes = Scheme::CodeBytes(layout.block, options);
  const auto kept = [&](std::int64_t elements) {
    if constexpr (requires { Scheme::Kept(elements, options); }) return Scheme::Kept(elements, options);
    return elements;
  };
  layout.kept = kept(layout.block);
  layout.kept_of_last = kept(count - (layout.blocks - 1) * layout.block);
  return layout;
}

// What a scheme derives from when `kEncode` and `kDecode`, like EncodeRangeBlocks and DecodeRangeBlocks
// (kernels/range_blocks.h), take all blocks of a message at once, because a block takes less time than a call.
template <class Scheme, auto kEncode, auto kDecode>
struct KernelScheme : BlockScheme {
  using BlockScheme::BlockScheme;

  static void EncodeBlocks(absl::Span<const float> values, const CodecOptions& options, std::uint64_t draw,
                           std::uint8_t* message) {
    kEncode(LayoutOf<Scheme>(static_cast<std::int64_t>(values.size()), options), values.data(), draw, message);
  }
  static void DecodeBlocks(const std::uint8_t* message, const CodecOptions& options, bool accumulate,
                           absl::Span<float> values) {
    kDecode(LayoutOf<Scheme>(static_cast<std::int64_t>(values.size()), options), message, accumulate, values.data());
  }
};

}  // namespace tutti::codecs

#endif  // TUTTI_ALGORITHMS_CODECS_BLOCK_LAYOUT_H_
