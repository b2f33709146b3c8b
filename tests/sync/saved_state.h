// What SaveState writes, read and written without the library's help: little-endian numbers of 64 bits, and strings of
// bytes after their length.
#ifndef TUTTI_TESTS_SYNC_SAVED_STATE_H_
#define TUTTI_TESTS_SYNC_SAVED_STATE_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace tutti {

struct SavedRange {
  std::string name;
  std::int64_t kind = 0;
  std::int64_t dtype = 0;
  std::int64_t first_element = 0;
  std::int64_t divisor = 1;
  std::string bytes;

  std::vector<float> floats() const {
    std::vector<float> values(bytes.size() / sizeof(float));
    if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
    return values;
  }
};

struct SavedBucket {
  std::int64_t count = 0;
  std::vector<SavedRange> ranges;
};

// A state without the hash at its end.
inline std::string Unsigned(const std::string& state) { return state.substr(0, state.size() - sizeof(std::uint64_t)); }

// `content` and the hash of its words after it; the last word is filled up with zeros.
inline std::string Signed(const std::string& content) {
  constexpr std::uint64_t kPrime = 0x9e3779b97f4a7c15;
  std::uint64_t hash = kPrime ^ content.size();
  for (std::size_t at = 0; at < content.size(); at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, content.data() + at, std::min<std::size_t>(8, content.size() - at));
    hash = (hash ^ word) * kPrime;
    hash ^= hash >> 32;
  }
  return content + std::string(reinterpret_cast<const char*>(&hash), sizeof(hash));
}

struct SavedState {
  std::int64_t magic = 0;
  std::int64_t version = 0;
  std::string strategy;
  std::int64_t rank = 0;
  std::int64_t size = 0;
  std::int64_t step = 0;
  std::int64_t loss_scale = 0;  // the bits of a double
  std::vector<std::int64_t> participants;
  std::vector<SavedBucket> buckets;

  // Calls number(field) and text(field) for every field in the order of the file; a list follows its length.
  template <typename Number, typename Text>
  void Visit(Number number, Text text) {
    number(magic);
    number(version);
    text(strategy);
    number(rank);
    number(size);
    number(step);
    number(loss_scale);
    auto length = [&](auto& list) {
      auto count = static_cast<std::int64_t>(list.size());
      number(count);
      list.resize(static_cast<std::size_t>(count));
    };
    length(participants);
    for (std::int64_t& participant : participants) number(participant);
    length(buckets);
    for (SavedBucket& bucket : buckets) {
      number(bucket.count);
      length(bucket.ranges);
      for (SavedRange& range : bucket.ranges) {
        text(range.name);
        number(range.kind);
        number(range.dtype);
        number(range.first_element);
        number(range.divisor);
        text(range.bytes);
      }
    }
  }

  // Reads a state that is sound.
  static SavedState Read(const std::string& state) {
    const char* at = state.data();
    auto number = [&at](std::int64_t& value) {
      std::memcpy(&value, at, sizeof(value));
      at += sizeof(value);
    };
    auto text = [&](std::string& value) {
      std::int64_t length = 0;
      number(length);
      value.assign(at, static_cast<std::size_t>(length));
      at += length;
    };
    SavedState saved;
    saved.Visit(number, text);
    return saved;
  }

  std::string Write() {
    std::string state;
    auto number = [&state](std::int64_t& value) { state.append(reinterpret_cast<const char*>(&value), sizeof(value)); };
    auto text = [&](std::string& value) {
      auto length = static_cast<std::int64_t>(value.size());
      number(length);
      state += value;
    };
    Visit(number, text);
    return Signed(state);
  }

  // The range `name` of the bucket; nullptr when there is none.
  const SavedRange* Find(std::size_t bucket, const std::string& name) const {
    for (const SavedRange& range : buckets[bucket].ranges) {
      if (range.name == name) return &range;
    }
    return nullptr;
  }
};

}  // namespace tutti

#endif  // TUTTI_TESTS_SYNC_SAVED_STATE_H_
