#include "bindings/cli/replay/npy.h"

#include <cctype>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "bindings/cli/read_file.h"
#include "bindings/cli/write_file.h"

namespace tutti::cli {
namespace {

constexpr absl::string_view kMagic("\x93NUMPY", 6);
constexpr std::size_t kAlignment = 64;  // the values in the file start at a multiple of this

absl::Status Wrong(absl::string_view what) { return absl::InvalidArgumentError(what); }

// Takes the header, a dictionary in Python's syntax, off the front of `bytes`.
absl::StatusOr<absl::string_view> TakeHeader(absl::string_view& bytes) {
  if (!absl::ConsumePrefix(&bytes, kMagic)) return Wrong("is no .npy file: it does not begin with \\x93NUMPY");
  if (bytes.size() < 2) return Wrong("ends within its version");
  const int major = static_cast<unsigned char>(bytes[0]);
  const int minor = static_cast<unsigned char>(bytes[1]);
  bytes.remove_prefix(2);
  if (major < 1 || major > 3 || minor != 0) {
    return Wrong(absl::StrCat("is of version ", major, ".", minor, "; this program reads 1.0, 2.0 and 3.0"));
  }
  const std::size_t width = major == 1 ? 2 : 4;
  if (bytes.size() < width) return Wrong("ends within the length of its header");
  std::size_t length = 0;
  for (std::size_t i = 0; i < width; ++i) length |= std::size_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  bytes.remove_prefix(width);
  if (bytes.size() < length) return Wrong("ends within its header");
  const absl::string_view header = bytes.substr(0, length);
  bytes.remove_prefix(length);
  return header;
}

// The value of `key` in the dictionary: the text up to the next comma or brace, or a whole value in brackets.
absl::StatusOr<absl::string_view> Entry(absl::string_view header, absl::string_view key) {
  const std::string quoted = absl::StrCat("'", key, "'");
  const std::size_t at = header.find(quoted);
  if (at == absl::string_view::npos) return Wrong(absl::StrCat("has no ", quoted, " in its header"));
  absl::string_view value = absl::StripLeadingAsciiWhitespace(header.substr(at + quoted.size()));
  if (!absl::ConsumePrefix(&value, ":")) return Wrong(absl::StrCat("has no value of ", quoted, " in its header"));
  value = absl::StripLeadingAsciiWhitespace(value);
  std::size_t end = value.find_first_of(",}");
  if (absl::StartsWith(value, "("))
    end = value.find(')') == absl::string_view::npos ? value.size() : value.find(')') + 1;
  if (absl::StartsWith(value, "["))
    end = value.find(']') == absl::string_view::npos ? value.size() : value.find(']') + 1;
  return absl::StripTrailingAsciiWhitespace(value.substr(0, end));
}

absl::Status CheckElements(absl::string_view header) {
  const absl::StatusOr<absl::string_view> descr = Entry(header, "descr");
  if (!descr.ok()) return descr.status();
  if (*descr != "'<f4'") {
    return Wrong(absl::StrCat("holds elements of ", *descr,
                              "; needed is '<f4', float32 in little-endian order: save it "
                              "with .astype('<f4')"));
  }
  const absl::StatusOr<absl::string_view> fortran = Entry(header, "fortran_order");
  if (!fortran.ok()) return fortran.status();
  if (*fortran == "True") {
    return Wrong("is in Fortran order; needed is C order: save it with numpy.ascontiguousarray()");
  }
  return *fortran == "False" ? absl::OkStatus() : Wrong(absl::StrCat("has fortran_order ", *fortran, " in its header"));
}

absl::StatusOr<std::vector<std::int64_t>> ParseShape(absl::string_view header) {
  const absl::StatusOr<absl::string_view> entry = Entry(header, "shape");
  if (!entry.ok()) return entry.status();
  absl::string_view list = *entry;
  const auto no_shape = [&] {
    return Wrong(absl::StrCat("has shape ", *entry, " in its header, which is no tuple of whole numbers"));
  };
  if (!absl::ConsumePrefix(&list, "(") || !absl::ConsumeSuffix(&list, ")")) return no_shape();
  std::vector<std::int64_t> shape;
  for (const absl::string_view number : absl::StrSplit(list, ',')) {
    const absl::string_view digits = absl::StripAsciiWhitespace(number);
    if (digits.empty()) continue;  // nothing follows the last comma
    if (!absl::SimpleAtoi(digits, &shape.emplace_back()) || shape.back() < 0) return no_shape();
  }
  return shape;
}

}  // namespace

std::string Array::ShapeText() const {
  return absl::StrCat("(", absl::StrJoin(shape, ", "), shape.size() == 1 ? ",)" : ")");
}

absl::StatusOr<Array> ParseNpy(absl::string_view bytes) {
  const absl::StatusOr<absl::string_view> header = TakeHeader(bytes);
  if (!header.ok()) return header.status();
  if (absl::Status elements = CheckElements(*header); !elements.ok()) return elements;
  absl::StatusOr<std::vector<std::int64_t>> shape = ParseShape(*header);
  if (!shape.ok()) return shape.status();
  Array array{.shape = *std::move(shape), .values = {}};
  std::size_t count = 1;
  for (const std::int64_t extent : array.shape) {
    // A count above what the file can hold is wrong anyway: such a count is cut, so that the product cannot overflow.
    if (extent != 0 && count > bytes.size() / static_cast<std::size_t>(extent))
      count = bytes.size() + 1;
    else
      count *= static_cast<std::size_t>(extent);
    if (count == 0) break;
  }
  if (count != bytes.size() / sizeof(float) || bytes.size() % sizeof(float) != 0) {
    return Wrong(absl::StrCat("has ", bytes.size(), " bytes of values, which do not make the float32 array of shape ",
                              array.ShapeText(), " that its header promises"));
  }
  array.values.resize(count);
  if (count > 0) std::memcpy(array.values.data(), bytes.data(), bytes.size());
  return array;
}

std::string FormatNpy(const Array& array) {
  std::string header = absl::StrCat("{'descr': '<f4', 'fortran_order': False, 'shape': ", array.ShapeText(), ", }");
  const std::size_t front = kMagic.size() + 2 + 2;
  header.append((kAlignment - (front + header.size() + 1) % kAlignment) % kAlignment, ' ');
  header += '\n';
  std::string bytes = absl::StrCat(kMagic, absl::string_view("\1\0", 2));
  bytes += static_cast<char>(header.size() & 0xff);
  bytes += static_cast<char>(header.size() >> 8);
  bytes += header;
  if (!array.values.empty()) {
    bytes.append(reinterpret_cast<const char*>(array.values.data()), array.values.size() * sizeof(float));
  }
  return bytes;
}

absl::StatusOr<Array> ReadNpy(const std::string& path) {
  const absl::StatusOr<std::string> bytes = ReadFile(path);
  if (!bytes.ok()) return bytes.status();
  absl::StatusOr<Array> array = ParseNpy(*bytes);
  if (array.ok()) return array;
  return absl::Status(array.status().code(), absl::StrCat(path, " ", array.status().message()));
}

absl::Status WriteNpy(const std::string& path, const Array& array) { return WriteFile(path, FormatNpy(array)); }

}  // namespace tutti::cli
