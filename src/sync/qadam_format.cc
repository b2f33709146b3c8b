#include "sync/qadam_format.h"

#include <bit>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "sync/byte_stream.h"
#include "sync/sealed_bytes.h"

namespace tutti {
namespace {

constexpr std::int64_t kMagic = 0x51545554;  // "TUTQ"
constexpr std::int64_t kVersion = 4;

// Flags of a parameter.
constexpr std::int64_t kFrozen = 1;
constexpr std::int64_t kNotTrained = 2;

void WriteBytes(ByteWriter& writer, absl::string_view bytes) {
  writer.Bytes(bytes.data(), static_cast<std::int64_t>(bytes.size()));
}

bool IsFlag(std::int64_t number) { return number == 0 || number == 1; }

// Reads the next parameter of `saved`. What is read past the end of the state is zero, and no error here.
absl::Status ReadMoments(ByteReader& reader, SavedQAdam& saved) {
  SavedMoments& moments = saved.parameters.emplace_back();
  moments.changes = reader.Number();
  const std::int64_t flags = reader.Number();
  moments.frozen = (flags & kFrozen) != 0;
  moments.trained = (flags & kNotTrained) == 0;
  moments.name = reader.Bytes();
  moments.m = reader.Bytes();
  moments.v = reader.Bytes();
  if (reader.overrun()) return absl::OkStatus();
  if (moments.changes < 0 || moments.changes > saved.step) {
    return absl::InvalidArgumentError(absl::StrCat("the state is damaged: ", moments.changes, " steps have changed ",
                                                   moments.name, ", must be 0 to ", saved.step));
  }
  const bool known = (flags & ~(kFrozen | kNotTrained)) == 0;
  if (!known || (moments.frozen && !saved.frozen) || moments.m.size() != moments.v.size()) {
    return absl::InvalidArgumentError(absl::StrCat("the state is damaged: ", moments.name, " has the flags ", flags,
                                                   ", and ", moments.m.size(), " and ", moments.v.size(),
                                                   " bytes of m and v"));
  }
  return absl::OkStatus();
}

}  // namespace

std::string Write(const SavedQAdam& saved) {
  ByteWriter writer;
  writer.Number(kMagic);
  writer.Number(kVersion);
  writer.Number(saved.step);
  writer.Number(saved.frozen ? 1 : 0);
  writer.Number(std::bit_cast<std::int64_t>(saved.last_norm));
  writer.Number(static_cast<std::int64_t>(saved.parameters.size()));
  for (const SavedMoments& moments : saved.parameters) {
    writer.Number(moments.changes);
    writer.Number((moments.frozen ? kFrozen : 0) | (moments.trained ? 0 : kNotTrained));
    for (const absl::string_view bytes : {moments.name, moments.m, moments.v}) WriteBytes(writer, bytes);
  }
  return Seal(writer.Take());
}

absl::StatusOr<SavedQAdam> ParseQAdam(const std::string& state) {
  ByteReader reader(ContentOf(state));
  if (reader.Number() != kMagic) {
    return absl::InvalidArgumentError(
        absl::StrCat("the state of ", state.size(), " bytes was not made by QAdam::SaveState"));
  }
  if (const std::int64_t version = reader.Number(); !reader.overrun() && version != kVersion) {
    return absl::InvalidArgumentError(
        absl::StrCat("the state has version ", version, " of the format of QAdam::SaveState, expected ", kVersion));
  }
  if (!IsWhole(state)) {
    return absl::InvalidArgumentError(
        absl::StrCat("the state is damaged: its ", state.size(), " bytes are not those that were saved"));
  }
  SavedQAdam saved;
  saved.step = reader.Number();
  const std::int64_t frozen = reader.Number();
  saved.frozen = frozen == 1;
  saved.last_norm = std::bit_cast<double>(reader.Number());
  if (!reader.overrun() && (saved.step < 0 || !IsFlag(frozen) || saved.last_norm < 0)) {
    return absl::InvalidArgumentError(absl::StrCat("the state is damaged: step ", saved.step,
                                                   " must be at least 0, frozen ", frozen, " 0 or 1, norm ",
                                                   saved.last_norm, " at least 0"));
  }
  const std::int64_t parameters = reader.Number();
  for (std::int64_t i = 0; i < parameters && !reader.overrun(); ++i) {
    if (absl::Status sound = ReadMoments(reader, saved); !sound.ok()) return sound;
  }
  if (reader.complete() && parameters >= 0) return saved;
  return absl::InvalidArgumentError(
      absl::StrCat("the state is damaged: its ", state.size(), " bytes are too few or too many"));
}

}  // namespace tutti
