#include "bindings/cli/bench/svg_chart.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bindings/cli/sizes.h"
#include "bindings/cli/svg_shapes.h"

namespace tutti::cli {
namespace {

// Pixels.
constexpr double kAxisWidth = 58;  // of the labels on the left of a chart
constexpr double kChartHeight = 420;
constexpr double kLine = 20;
constexpr double kMark = 4;
constexpr std::size_t kLegendColumns = 3;
constexpr std::size_t kMaxLabelBytes = 44;  // bytes that a column of the legend has room for
constexpr int kMaxTicks = 10;

// Colors that people who see colors differently can tell apart (Okabe and Ito), dark enough for white paper.
constexpr const char* kColors[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555"};

const char* ColorOf(int number) { return kColors[static_cast<std::size_t>(number) % std::size(kColors)]; }

// Curves with one color differ in the form of their marks: circles, squares and triangles.
std::string Mark(double x, double y, int number) {
  switch (static_cast<std::size_t>(number) / std::size(kColors) % 3) {
    case 0:
      return absl::StrFormat("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%g\" fill=\"%s\"/>\n", x, y, kMark - 0.5,
                             ColorOf(number));
    case 1:
      return absl::StrFormat("<rect x=\"%.1f\" y=\"%.1f\" width=\"%g\" height=\"%g\" fill=\"%s\"/>\n", x - kMark + 0.5,
                             y - kMark + 0.5, 2 * kMark - 1, 2 * kMark - 1, ColorOf(number));
    default:
      return absl::StrFormat("<path d=\"M%.1f %.1fl%g %gh-%gz\" fill=\"%s\"/>\n", x, y - kMark, kMark, 2 * kMark,
                             2 * kMark, ColorOf(number));
  }
}

// A logarithmic axis from `low` to `high`, which lie at `first` and `last` on the paper.
struct Axis {
  double low = 1, high = 10, first = 0, last = 1;

  double operator()(double value) const {
    return first + (last - first) * std::log(value / low) / std::log(high / low);
  }
};

bool IsDrawn(const std::pair<double, double>& point) { return point.first > 0 && point.second > 0; }

// The axis that has room for the curves' points in one coordinate, and some more.
template <typename Coordinate>
Axis AxisFor(const std::vector<Curve>& curves, Coordinate of, double first, double last) {
  double low = std::numeric_limits<double>::max(), high = 0;
  for (const Curve& curve : curves) {
    for (const auto& point : curve.points) {
      if (!IsDrawn(point)) continue;
      low = std::min(low, of(point));
      high = std::max(high, of(point));
    }
  }
  if (high == 0) low = high = 1;  // no point is drawn
  const double room = std::max(std::pow(high / low, 0.04), 1.2);
  return {.low = low / room, .high = high * room, .first = first, .last = last};
}

// Powers of two, each as many times the one before that there is room for all.
std::vector<double> TicksOfBytes(const Axis& axis) {
  const int first = static_cast<int>(std::ceil(std::log2(axis.low)));
  const int last = static_cast<int>(std::floor(std::log2(axis.high)));
  const int step = std::max(1, (last - first + kMaxTicks) / kMaxTicks);
  std::vector<double> ticks;
  for (int power = std::max(first, 0); power <= last; power += step) ticks.push_back(std::exp2(power));
  return ticks;
}

// Powers of ten, with 2 and 5 times each where there is room.
std::vector<double> TicksOfValues(const Axis& axis) {
  for (const std::vector<int>& steps : {std::vector<int>{1, 2, 5}, std::vector<int>{1}}) {
    std::vector<double> ticks;
    for (int power = static_cast<int>(std::floor(std::log10(axis.low))); std::pow(10, power) <= axis.high; ++power) {
      for (const int step : steps) {
        const double tick = step * std::pow(10, power);
        if (tick >= axis.low && tick <= axis.high) ticks.push_back(tick);
      }
    }
    if (ticks.size() <= kMaxTicks || steps.size() == 1) return ticks;
  }
  return {};
}

std::string DrawCurve(const Curve& curve, const Axis& x, const Axis& y) {
  std::string path, marks;
  for (const auto& point : curve.points) {
    if (!IsDrawn(point)) continue;
    absl::StrAppendFormat(&path, "%s%.1f %.1f", path.empty() ? "M" : "L", x(point.first), y(point.second));
    if (!curve.dashed) absl::StrAppend(&marks, Mark(x(point.first), y(point.second), curve.color));
  }
  if (path.empty()) return "";
  return absl::StrFormat("<path d=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"%g\"%s/>\n%s", path,
                         ColorOf(curve.color), curve.dashed ? 1.4 : 2.0,
                         curve.dashed ? " stroke-dasharray=\"6 4\" opacity=\"0.75\"" : "", marks);
}

// The chart between `left` and `right`, from `top` down.
std::string DrawChart(const Chart& chart, double left, double right, double top) {
  const double bottom = top + kChartHeight;
  left += kAxisWidth;
  const Axis x = AxisFor(
      chart.curves, [](const auto& point) { return point.first; }, left, right);
  const Axis y = AxisFor(
      chart.curves, [](const auto& point) { return point.second; }, bottom, top);
  std::string svg;
  for (const double tick : TicksOfBytes(x)) {
    absl::StrAppend(&svg, SvgLine(x(tick), top, x(tick), bottom, "#e4e4e4", 1),
                    SvgText(x(tick), bottom + 18, 13, "middle", FormatBytes(static_cast<std::int64_t>(tick))));
  }
  for (const double tick : TicksOfValues(y)) {
    absl::StrAppend(&svg, SvgLine(left, y(tick), right, y(tick), "#e4e4e4", 1),
                    SvgText(left - 6, y(tick) + 4, 13, "end", absl::StrFormat("%g", tick)));
  }
  absl::StrAppendFormat(
      &svg, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"none\" stroke=\"#888888\"/>\n", left,
      top, right - left, kChartHeight);
  absl::StrAppend(&svg, SvgText((left + right) / 2, bottom + 40, 14, "middle", chart.x_label),
                  SvgText(left, top - 8, 14, "start", chart.y_label));
  for (const Curve& curve : chart.curves) absl::StrAppend(&svg, DrawCurve(curve, x, y));
  return svg;
}

std::string DrawLegend(const std::vector<const Curve*>& curves, double top) {
  constexpr double kSample = 34;
  const double column = (kPictureWidth - 2 * kPictureMargin) / kLegendColumns;
  std::string svg;
  for (std::size_t i = 0; i < curves.size(); ++i) {
    const std::size_t line = i / kLegendColumns;
    const double x = kPictureMargin + column * static_cast<double>(i % kLegendColumns);
    const double y = top + kLine * static_cast<double>(line);
    absl::StrAppend(&svg, SvgLine(x, y - 5, x + kSample, y - 5, ColorOf(curves[i]->color), 2),
                    Mark(x + kSample / 2, y - 5, curves[i]->color),
                    SvgText(x + kSample + 8, y, 13, "start", Shortened(curves[i]->label, kMaxLabelBytes)));
  }
  return svg;
}

}  // namespace

std::string SvgOf(const std::string& title, const std::string& description, absl::Span<const std::string> notes,
                  absl::Span<const Chart> charts) {
  std::string body = SvgHeading(title, notes);
  double top = BelowHeading(notes) + kLine;
  std::vector<const Curve*> in_legend;
  if (!charts.empty()) {
    const double width = (kPictureWidth - kPictureMargin) / static_cast<double>(charts.size());
    for (std::size_t i = 0; i < charts.size(); ++i) {
      const double left = kPictureMargin / 2 + width * static_cast<double>(i);
      absl::StrAppend(&body, DrawChart(charts[i], left, left + width - kPictureMargin, top));
    }
    for (const Curve& curve : charts.front().curves) {
      if (!curve.dashed) in_legend.push_back(&curve);
    }
  }
  top += kChartHeight + 72;
  absl::StrAppend(&body, DrawLegend(in_legend, top));
  const std::size_t lines = (in_legend.size() + kLegendColumns - 1) / kLegendColumns;
  const double height = top + kLine * static_cast<double>(lines);
  return SvgPicture(height, description, body);
}

}  // namespace tutti::cli
