#include "plan/native_ranges.h"

#include "absl/strings/str_cat.h"
#include "tutti/print.h"

namespace tutti {
namespace {

bool Overlap(const Ref& a, const Ref& b) {
  return a.space == b.space && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

// Whether the shorter of the two ranges is where the collective in place has it: the whole of the longer one, or the
// block of the rank at `place`.
bool IsInPlace(const CollectiveSpec& spec, Rank place, const Ref& in, const Ref& out) {
  if (!HasInPlaceForm(spec.collective)) return false;
  const Ref& longer = in.bytes > out.bytes ? in : out;
  const Ref& shorter = in.bytes > out.bytes ? out : in;
  return shorter.offset == longer.offset + (in.bytes == out.bytes ? 0 : place * shorter.bytes);
}

}  // namespace

std::string NativeRangeFault(const CollectiveSpec& spec, Rank place, int size, const Ref& in, const Ref& out) {
  const std::int64_t needed_in = InputCount(spec, place, size);
  const std::int64_t needed_out = OutputCount(spec, place, size);
  if (in.count() != needed_in || out.count() != needed_out) {
    return absl::StrCat("srcs[0] has ", in.count(), " and dsts[0] ", out.count(), " elements, must have ", needed_in,
                        " and ", needed_out, " in ", ToString(spec), " at place ", place, " of ", size);
  }
  for (const Ref* ref : {&in, &out}) {
    if (ref->bytes == 0) continue;
    if (ref->owner != kSelf) {
      return absl::StrCat(ToText(*ref), ": a native step works in the memory of its own rank alone");
    }
    if (ref->dtype != spec.dtype) {
      return absl::StrCat(ToText(*ref), " must be of ", Name(spec.dtype), ", the type of the native call");
    }
  }
  if (in.bytes > 0 && out.bytes > 0 && Overlap(in, out) && !IsInPlace(spec, place, in, out)) {
    return absl::StrCat(ToText(out), " overlaps ", ToText(in), " other than ", Name(spec.collective),
                        " in place does at place ", place);
  }
  return "";
}

}  // namespace tutti
