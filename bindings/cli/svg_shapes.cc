#include "bindings/cli/svg_shapes.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace tutti::cli {

absl::StatusOr<std::string> ParseSvgFile(absl::string_view file) {
  if (absl::EndsWith(file, ".svg")) return std::string(file);
  return absl::InvalidArgumentError(absl::StrCat("'", file, "' cannot be drawn; the name must end in .svg"));
}

std::string Escaped(absl::string_view text) {
  return absl::StrReplaceAll(text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

std::string Shortened(const std::string& text, std::size_t most) {
  if (text.size() <= most) return text;
  std::size_t end = most - 3;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;  // inside a character of UTF-8
  return absl::StrCat(text.substr(0, end), "...");
}

std::string SvgText(double x, double y, int size, absl::string_view anchor, absl::string_view text,
                    absl::string_view more) {
  return absl::StrFormat("<text x=\"%.1f\" y=\"%.1f\" font-size=\"%d\" text-anchor=\"%s\"%s>%s</text>\n", x, y, size,
                         anchor, more, Escaped(text));
}

std::string SvgLine(double x1, double y1, double x2, double y2, absl::string_view color, double width) {
  return absl::StrFormat("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" stroke-width=\"%g\"/>\n",
                         x1, y1, x2, y2, color, width);
}

std::string SvgHeading(absl::string_view title, absl::Span<const std::string> notes) {
  std::string svg = SvgText(kPictureMargin, 34, 20, "start", title, " font-weight=\"bold\"");
  for (std::size_t i = 0; i < notes.size(); ++i) {
    absl::StrAppend(&svg,
                    SvgText(kPictureMargin, BelowHeading(notes.first(i)), 13, "start", notes[i], " fill=\"#444444\""));
  }
  return svg;
}

double BelowHeading(absl::Span<const std::string> notes) { return 58 + 18 * static_cast<double>(notes.size()); }

std::string SvgPicture(double height, absl::string_view description, absl::string_view body) {
  return absl::StrCat(
      absl::StrFormat("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%g\" height=\"%g\" viewBox=\"0 0 %g %g\" "
                      "font-family=\"DejaVu Sans, Helvetica, Arial, sans-serif\">\n<rect width=\"100%%\" "
                      "height=\"100%%\" fill=\"#ffffff\"/>\n",
                      kPictureWidth, height, kPictureWidth, height),
      "<desc>", Escaped(description), "</desc>\n", body, "</svg>\n");
}

}  // namespace tutti::cli
