// Charts with logarithmic axes, as SVG.
#ifndef TUTTI_BINDINGS_CLI_BENCH_SVG_CHART_H_
#define TUTTI_BINDINGS_CLI_BENCH_SVG_CHART_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"

namespace tutti::cli {

struct Curve {
  std::string label;
  std::vector<std::pair<double, double>> points;  // those that are not positive have no place, and are left out
  int color = 0;                                  // curves of one number have one color, and one kind of mark
  bool dashed = false;                            // a dashed curve has no marks, and no line in the legend
};

struct Chart {
  std::string x_label;  // of an axis that is labelled in bytes: 1K, 4K, …
  std::string y_label;
  std::vector<Curve> curves;
};

// The charts side by side, 1,200 pixels wide together; above them the title and the notes, in lines of their own, below
// them one legend for all, made of the curves of the first chart. The description is in the file, but is not drawn.
std::string SvgOf(const std::string& title, const std::string& description, absl::Span<const std::string> notes,
                  absl::Span<const Chart> charts);

}  // namespace tutti::cli

#endif  // TUTTI_BINDINGS_CLI_BENCH_SVG_CHART_H_
