// Messages in a peer's memory can change while they are decoded: whatever a message holds at each moment, nothing
// outside of the result is written.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/codecs/inputs.h"
#include "tests/codecs/messages.h"
#include "tutti/codec.h"

namespace tutti {
namespace {

// Memory that is mapped at two addresses, one for the peer and one for this rank.
class SharedMessage {
 public:
  explicit SharedMessage(const std::vector<std::uint8_t>& message) : bytes_(message.size()) {
    const int file = memfd_create("message", MFD_CLOEXEC);
    EXPECT_EQ(ftruncate(file, static_cast<off_t>(bytes_)), 0);
    for (std::uint8_t** mapping : {&own_, &peers_}) {
      void* const mapped = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
      EXPECT_NE(mapped, MAP_FAILED);
      *mapping = static_cast<std::uint8_t*>(mapped);
    }
    close(file);
    std::copy(message.begin(), message.end(), own_);
  }
  ~SharedMessage() {
    munmap(own_, bytes_);
    munmap(peers_, bytes_);
  }
  SharedMessage(const SharedMessage&) = delete;
  SharedMessage& operator=(const SharedMessage&) = delete;

  absl::Span<const std::uint8_t> Read() const { return {own_, bytes_}; }
  void Write(std::size_t at, std::uint8_t byte) {
    std::atomic_ref<std::uint8_t>(peers_[at]).store(byte, std::memory_order_relaxed);
  }
  std::size_t size() const { return bytes_; }

 private:
  const std::size_t bytes_;
  std::uint8_t* own_ = nullptr;
  std::uint8_t* peers_ = nullptr;
};

// Decodes `message` again and again while `change` is called again and again by a peer. `reach`: elements behind the
// result that a wrong index may lead to; they must stay as they are.
void DecodeWhileItChanges(const Codec& codec, const CodecOptions& options, std::size_t count, std::size_t reach,
                          SharedMessage& message, const std::function<void()>& change) {
  constexpr float kUntouched = 42;
  std::vector<float> memory(count + reach, kUntouched);
  std::atomic<bool> done = false;
  std::thread peer([&] {
    while (!done) change();
  });
  const absl::Time end = absl::Now() + absl::Milliseconds(150);
  while (absl::Now() < end) {
    for (const bool accumulate : {false, true}) {
      const absl::Status status = codec.decode(message.Read(), options, accumulate, {memory.data(), count});
      EXPECT_TRUE(status.ok() || status.code() == absl::StatusCode::kDataLoss) << status;
    }
  }
  done = true;
  peer.join();
  EXPECT_TRUE(std::all_of(memory.begin() + static_cast<std::ptrdiff_t>(count), memory.end(),
                          [](float value) { return value == kUntouched; }))
      << codec.name << " has written outside of its result";
}

TEST(ChangingMessage, TopKUsesTheIndexThatItHasChecked) {
  constexpr std::size_t kCount = 60000;
  const CodecOptions options = {.block = 0, .density = 0.05};
  const Codec& codec = **FindCodec("topk");
  std::vector<std::uint8_t> bytes = EncodeMessage(codec, options, MakeValues(Input::kUniform, kCount));
  // The last index of the message, which is the last element or, with another upper byte, an element far behind the
  // end.
  const std::uint16_t last = kCount - 1;
  std::memcpy(&bytes[bytes.size() - 2], &last, sizeof(last));
  SharedMessage message(bytes);
  DecodeWhileItChanges(codec, options, kCount, 65536 - kCount, message, [&] {
    message.Write(message.size() - 1, 0xff);
    message.Write(message.size() - 1, last >> 8);
  });
}

class ChangingMessageOf : public ::testing::TestWithParam<const Codec*> {};

TEST_P(ChangingMessageOf, IsDecodedOrRefused) {
  constexpr std::size_t kCount = 3000;
  const Codec& codec = *GetParam();
  SharedMessage message(EncodeMessage(codec, codec.defaults, MakeValues(Input::kManyScales, kCount)));
  std::mt19937 random(5);
  const absl::Span<const std::uint8_t> sound = message.Read();
  const std::vector<std::uint8_t> original(sound.begin(), sound.end());
  DecodeWhileItChanges(codec, codec.defaults, kCount, 65536, message, [&] {
    const std::size_t at = random() % message.size();
    message.Write(at, static_cast<std::uint8_t>(random()));
    message.Write(at, original[at]);
  });
}

INSTANTIATE_TEST_SUITE_P(Codecs, ChangingMessageOf, ::testing::ValuesIn(AllCodecs().begin(), AllCodecs().end()),
                         [](const auto& codec) { return std::string(codec.param->name); });

}  // namespace
}  // namespace tutti
