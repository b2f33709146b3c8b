#include "plan/contents.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"

namespace tutti {

void Append(std::vector<ValueRun>& runs, const ValueRun& run) {
  if (!runs.empty()) {
    ValueRun& last = runs.back();
    const bool nothing = run.value.symbol == Value().symbol;
    const Value next = nothing ? run.value : last.value + last.count;
    if (last.writer == run.writer && last.value.symbol == run.value.symbol && next == run.value) {
      last.count += run.count;
      return;
    }
  }
  runs.push_back(run);
}

std::vector<ValueRun> Slice(absl::Span<const ValueRun> runs, std::int64_t first, std::int64_t count) {
  std::vector<ValueRun> slice;
  for (const ValueRun& run : runs) {
    const std::int64_t begin = std::max<std::int64_t>(first, 0);
    const std::int64_t n = std::min(run.count, first + count) - begin;
    if (n > 0) slice.push_back({n, run.value + begin, run.writer});
    first -= run.count;
    if (first + count <= 0) break;
  }
  return slice;
}

std::vector<ValueRun> Contents::Read(const Ref& ref, std::string& error) const {
  std::vector<ValueRun> runs;
  const std::int64_t width = SizeOf(ref.dtype);
  const std::int64_t end = ref.offset + ref.bytes;
  auto piece = pieces_.upper_bound(ref.offset);
  if (piece != pieces_.begin() && std::prev(piece)->second.end > ref.offset) --piece;
  for (std::int64_t at = ref.offset; at < end;) {
    const std::int64_t start = piece == pieces_.end() ? end : std::min(piece->first, end);
    if (start > at) {
      Append(runs, {.count = (start - at) / width});
      at = start;
      continue;
    }
    const Piece& p = piece->second;
    const std::int64_t until = std::min(p.end, end);
    if (p.dtype != ref.dtype || (at - piece->first) % width != 0 || (until - at) % width != 0) {
      error = absl::StrCat("bytes [", at, ",", until, ") hold ", Name(p.dtype), ", not ", Name(ref.dtype));
      return {};
    }
    Append(runs, {(until - at) / width, p.value + (at - piece->first) / width, p.writer});
    at = until;
    ++piece;
  }
  return runs;
}

std::vector<ValueRun> Contents::Pieces() const {
  std::vector<ValueRun> runs;
  for (const auto& [begin, piece] : pieces_) {
    runs.push_back({(piece.end - begin) / SizeOf(piece.dtype), piece.value, piece.writer});
  }
  return runs;
}

// Cuts the piece that has byte `at` inside, so that a piece starts at `at`.
void Contents::Cut(std::int64_t at) {
  auto piece = pieces_.upper_bound(at);
  if (piece == pieces_.begin()) return;
  --piece;
  if (piece->first == at || piece->second.end <= at) return;
  Piece rest = piece->second;
  const std::int64_t width = SizeOf(rest.dtype);
  if ((at - piece->first) % width == 0) {
    rest.value = rest.value + (at - piece->first) / width;
    pieces_.emplace_hint(std::next(piece), at, rest);
  } else if (const std::int64_t whole = at + width - (at - piece->first) % width; whole < rest.end) {
    // An element through which the cut goes is lost: its bytes then hold nothing.
    rest.value = rest.value + (whole - piece->first) / width;
    pieces_.emplace_hint(std::next(piece), whole, rest);
  }
  piece->second.end = at - (at - piece->first) % width;
  if (piece->second.end == piece->first) pieces_.erase(piece);
}

void Contents::Write(const Ref& ref, absl::Span<const ValueRun> runs, Position writer) {
  const std::int64_t width = SizeOf(ref.dtype);
  const std::int64_t end = ref.offset + ref.bytes;
  Cut(ref.offset);
  Cut(end);
  const auto last = pieces_.lower_bound(end);
  pieces_.erase(pieces_.lower_bound(ref.offset), last);
  std::int64_t at = ref.offset;
  for (const ValueRun& run : runs) {
    pieces_.emplace_hint(last, at, Piece{at + run.count * width, ref.dtype, run.value, writer});
    at += run.count * width;
  }
}

}  // namespace tutti
