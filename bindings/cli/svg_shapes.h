// The shapes that pictures in SVG are made of. Places and lengths are pixels.
#ifndef TUTTI_BINDINGS_CLI_SVG_SHAPES_H_
#define TUTTI_BINDINGS_CLI_SVG_SHAPES_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tutti::cli {

// The width of every picture, and the space left free at its sides.
inline constexpr double kPictureWidth = 1200;
inline constexpr double kPictureMargin = 24;

// `file`, when its end is .svg. InvalidArgument says so.
absl::StatusOr<std::string> ParseSvgFile(absl::string_view file);

// `text` as the content of an element or attribute.
std::string Escaped(absl::string_view text);

// `text`, cut to so many bytes with "..." in place of the rest; characters stay whole.
std::string Shortened(const std::string& text, std::size_t most);

// A text at (x, y), which `anchor` says to be its "start", "middle" or "end". `more` are further attributes, each with
// a space before it.
std::string SvgText(double x, double y, int size, absl::string_view anchor, absl::string_view text,
                    absl::string_view more = "");

std::string SvgLine(double x1, double y1, double x2, double y2, absl::string_view color, double width);

// The title of a picture and, below it, the notes, a line each; the y below them.
std::string SvgHeading(absl::string_view title, absl::Span<const std::string> notes);
double BelowHeading(absl::Span<const std::string> notes);

// A white picture of the width kPictureWidth. The description is in the file, but is not drawn.
std::string SvgPicture(double height, absl::string_view description, absl::string_view body);

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_SVG_SHAPES_H_
