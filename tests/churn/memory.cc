#include "tests/churn/memory.h"

#include <algorithm>
#include <cstring>

#include "kernels/float16.h"

namespace tutti::churn {
namespace {

constexpr std::byte kPoison{0xA5};

template <typename T>
void Put(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof(value));
}

template <typename T>
double Get(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return static_cast<double>(value);
}

std::uint16_t BitsAt(const std::byte* from) {
  std::uint16_t bits = 0;
  std::memcpy(&bits, from, sizeof(bits));
  return bits;
}

void PutNumber(std::byte* to, DType dtype, int value) {
  switch (dtype) {
    case DType::kF32:
      return Put(to, static_cast<float>(value));
    case DType::kF64:
      return Put(to, static_cast<double>(value));
    case DType::kF16:
      return Put(to, kernels::Float16FromFloat(static_cast<float>(value)));
    case DType::kBF16:
      return Put(to, kernels::BFloat16FromFloat(static_cast<float>(value)));
    case DType::kI8:
      return Put(to, static_cast<std::int8_t>(value));
    case DType::kU8:
      return Put(to, static_cast<std::uint8_t>(value));
    case DType::kI32:
      return Put(to, static_cast<std::int32_t>(value));
    case DType::kI64:
      return Put(to, static_cast<std::int64_t>(value));
    case DType::kI16:
    case DType::kU16:
      return Put(to, static_cast<std::uint16_t>(value));
    case DType::kU32:
      return Put(to, static_cast<std::uint32_t>(value));
    case DType::kU64:
      return Put(to, static_cast<std::uint64_t>(value));
    case DType::kBool:
    case DType::kF8E4M3FN:  // a number is stored as one byte
    case DType::kF8E5M2:
      return Put(to, static_cast<std::uint8_t>(value));
    case DType::kC64:  // both parts are the integer
    case DType::kC128:
      PutNumber(to, PartOf(dtype), value);
      return PutNumber(to + SizeOf(PartOf(dtype)), PartOf(dtype), value);
  }
}

// Some periods of the values, as bytes: the unit in which memory is filled and compared.
std::vector<std::byte> Pattern(DType dtype, std::int64_t count, const Values& values) {
  const std::int64_t elements = std::min(count, 64 * kPeriod);
  std::vector<std::byte> pattern(static_cast<std::size_t>(elements * SizeOf(dtype)));
  for (std::int64_t i = 0; i < elements; ++i) PutNumber(pattern.data() + i * SizeOf(dtype), dtype, values(i));
  return pattern;
}

}  // namespace

void Fill(std::byte* to, DType dtype, std::int64_t count, const Values& values) {
  const std::vector<std::byte> pattern = Pattern(dtype, count, values);
  const auto bytes = static_cast<std::size_t>(count * SizeOf(dtype));
  for (std::size_t at = 0; at < bytes; at += pattern.size()) {
    std::memcpy(to + at, pattern.data(), std::min(pattern.size(), bytes - at));
  }
}

std::optional<std::int64_t> FirstWrong(const std::byte* at, DType dtype, std::int64_t count, const Values& values) {
  const std::vector<std::byte> pattern = Pattern(dtype, count, values);
  const auto bytes = static_cast<std::size_t>(count * SizeOf(dtype));
  for (std::size_t begin = 0; begin < bytes; begin += pattern.size()) {
    const std::size_t length = std::min(pattern.size(), bytes - begin);
    if (std::memcmp(at + begin, pattern.data(), length) == 0) continue;
    const auto* const wrong = std::mismatch(at + begin, at + begin + length, pattern.data()).first;
    return (wrong - at) / SizeOf(dtype);
  }
  return std::nullopt;
}

double NumberAt(const std::byte* at, DType dtype, std::int64_t i) {
  const std::byte* const element = at + i * SizeOf(dtype);
  switch (dtype) {
    case DType::kF32:
      return Get<float>(element);
    case DType::kF64:
      return Get<double>(element);
    case DType::kF16:
      return kernels::FloatFromFloat16(BitsAt(element));
    case DType::kBF16:
      return kernels::FloatFromBFloat16(BitsAt(element));
    case DType::kI8:
      return Get<std::int8_t>(element);
    case DType::kU8:
      return Get<std::uint8_t>(element);
    case DType::kI32:
      return Get<std::int32_t>(element);
    case DType::kI64:
      return Get<std::int64_t>(element);
    case DType::kI16:
      return Get<std::int16_t>(element);
    case DType::kU16:
      return Get<std::uint16_t>(element);
    case DType::kU32:
      return Get<std::uint32_t>(element);
    case DType::kU64:
      return Get<std::uint64_t>(element);
    case DType::kBool:
    case DType::kF8E4M3FN:
    case DType::kF8E5M2:
      return Get<std::uint8_t>(element);
    case DType::kC64:
    case DType::kC128:
      return NumberAt(element, PartOf(dtype), 0);
  }
  return 0;
}

absl::StatusOr<Memory> Memory::Make(Communicator& communicator, std::int64_t bytes, bool in_arena) {
  Memory memory;
  memory.bytes_ = bytes;
  if (!in_arena || bytes == 0) {
    memory.ordinary_.resize(static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1)));
    return memory;
  }
  absl::StatusOr<Buffer> buffer = communicator.Allocate(bytes);
  if (!buffer.ok()) return buffer.status();
  memory.arena_ = *std::move(buffer);
  return memory;
}

void Memory::Poison() { std::fill_n(data(), bytes_, kPoison); }

std::optional<std::int64_t> Memory::FirstWritten() const {
  const std::byte* const written = std::find_if(begin(), begin() + bytes_, [](std::byte b) { return b != kPoison; });
  if (written == begin() + bytes_) return std::nullopt;
  return written - begin();
}

}  // namespace tutti::churn
