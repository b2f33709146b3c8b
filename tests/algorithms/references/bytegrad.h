#ifndef TUTTI_TESTS_ALGORITHMS_REFERENCES_BYTEGRAD_H_
#define TUTTI_TESTS_ALGORITHMS_REFERENCES_BYTEGRAD_H_

#include <cmath>

#include "tests/algorithms/references/codec_loss.h"
#include "tests/algorithms/references/gradient_allreduce.h"

namespace tutti {

// Each of `size` ranks encodes every chunk; the owner of a chunk adds up what it decodes, divides by `divisor`, and
// encodes the result, which all ranks decode. With error feedback each of the two encoders adds what its last message
// has lost. In one exchange every rank encodes its bucket, and all ranks add up what they decode.
class ByteGradReference : public Reference {
 public:
  ByteGradReference(int size, int divisor, std::size_t count, const CodecChoice& codec, bool error_feedback,
                    bool one_exchange = false)
      : divisor_(divisor),
        codec_(codec),
        error_feedback_(error_feedback),
        one_exchange_(one_exchange),
        lost_gradients_(size, Floats(count)),
        lost_sums_(count) {}

  void Gradients(int /*step*/, Ranks& gradients) override {
    const int size = static_cast<int>(gradients.size());
    const std::size_t count = gradients[0].size();
    // The first count mod n chunks have one element more.
    std::vector<std::size_t> ends;
    for (int chunk = 0; chunk < size; ++chunk) {
      ends.push_back((chunk == 0 ? 0 : ends.back()) + count / size +
                     (static_cast<std::size_t>(chunk) < count % size ? 1 : 0));
    }
    std::int64_t encoded = 0;
    for (int chunk = 0; chunk < size; ++chunk) {
      encoded += EncodedBytes(codec_, ends[chunk] - (chunk == 0 ? 0 : ends[chunk - 1]));
    }
    // A bucket that encoding would not shrink is not encoded.
    if (size == 1 || encoded >= static_cast<std::int64_t>(count * sizeof(float))) {
      gradients.assign(size, SumInOrder(gradients, divisor_));
      return;
    }
    if (one_exchange_) {
      Ranks decoded;
      for (const Floats& gradient : gradients) decoded.push_back(ThroughCodec(codec_, gradient));
      gradients.assign(size, SumInOrder(decoded, divisor_));
      return;
    }
    Floats result;
    for (int chunk = 0; chunk < size; ++chunk) {
      const std::size_t begin = chunk == 0 ? 0 : ends[chunk - 1];
      Ranks decoded;
      for (int rank = 0; rank < size; ++rank) {
        decoded.push_back(Send(gradients[rank], begin, ends[chunk], lost_gradients_[rank]));
      }
      Floats whole(count);
      const Floats average = SumInOrder(decoded, divisor_);
      std::copy(average.begin(), average.end(), whole.begin() + static_cast<std::ptrdiff_t>(begin));
      const Floats arrived = Send(whole, begin, ends[chunk], lost_sums_);
      result.insert(result.end(), arrived.begin(), arrived.end());
    }
    gradients.assign(size, result);
  }

 private:
  // Encodes and decodes values[begin, end).
  Floats Send(const Floats& values, std::size_t begin, std::size_t end, Floats& lost) {
    Floats part(values.begin() + static_cast<std::ptrdiff_t>(begin), values.begin() + static_cast<std::ptrdiff_t>(end));
    if (!error_feedback_) return ThroughCodec(codec_, part);
    for (std::size_t i = 0; i < part.size(); ++i) part[i] += lost[begin + i];
    Floats arrived = ThroughCodec(codec_, part);
    for (std::size_t i = 0; i < part.size(); ++i) {
      const float missing = part[i] - arrived[i];
      lost[begin + i] = std::isfinite(missing) ? missing : 0;
    }
    return arrived;
  }

  const int divisor_;
  const CodecChoice codec_;
  const bool error_feedback_;
  const bool one_exchange_;
  Ranks lost_gradients_;  // what encoding has lost of each rank's gradients
  Floats lost_sums_;      // what encoding has lost of each chunk's sum
};

}  // namespace tutti

#endif  // TUTTI_TESTS_ALGORITHMS_REFERENCES_BYTEGRAD_H_
