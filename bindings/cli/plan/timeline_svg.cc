#include "bindings/cli/plan/timeline_svg.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "bindings/cli/plan/phases.h"
#include "bindings/cli/svg_shapes.h"

namespace tutti::cli {
namespace {

// Pixels.
constexpr double kLine = 20;
constexpr double kCharacter = 6.4;          // the width of an average character of a label in a bar
constexpr double kCharacterOfName = 7.6;    // of a name of a rank
constexpr double kThinnest = 1;             // of a bar
constexpr std::size_t kLabelledLanes = 16;  // with more lanes there is no room for sizes beside arrows
constexpr double kWidestBend = 48;          // of an arrow
constexpr std::size_t kLegendColumns = 3;
constexpr std::size_t kMaxNoteCharacters = 165;  // characters that a line of the heading has room for

constexpr char kPale[] = " opacity=\"0.5\"";
constexpr const char* kMessageColor = "#222222";
constexpr const char* kSignalColor = "#d55e00";

struct Look {
  const char* color;
  const char* meaning;
};

// In the order of the kinds: light colors that black text can be read on, and that people who see colors differently
// can tell apart.
constexpr Look kLooks[] = {
    {"#e69f00", "send: hands a message to the link"},
    {"#7cc4f0", "recv: takes a message in"},
    {"#d55e00", "signal: tells all ranks how far this rank is"},
    {"#e8e8e8", "waits for a message, a signal or its turn"},
    {"#4dbf9c", "reduce: combines several buffers into one"},
    {"#f0e442", "copy: copies memory"},
    {"#b9c46a", "scale: multiplies or divides by a number"},
    {"#c9ae84", "combine: adds up weighted buffers"},
    {"#e08bbd", "encode: makes fewer bytes of numbers"},
    {"#b9a4e3", "decode: makes numbers of encoded bytes"},
    {"#8fa8d6", "native: a whole collective of the transport"},
};
static_assert(std::size(kLooks) == static_cast<std::size_t>(StepKind::kNative) + 1);

const Look& LookOf(StepKind kind) { return kLooks[static_cast<std::size_t>(kind)]; }

// The number of characters of a text in UTF-8.
double Characters(absl::string_view text) {
  return static_cast<double>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

// Where lanes and times lie.
class Paper {
 public:
  Paper(const Timeline& timeline, double top) : seconds_(timeline.seconds), top_(top), lanes_(timeline.lanes.size()) {
    for (const Lane& lane : timeline.lanes) several_nodes_ = several_nodes_ || lane.node != timeline.lanes[0].node;
    for (const Lane& lane : timeline.lanes) {
      left_ = std::max(left_, kPictureMargin + (Characters(NameOf(lane)) + 1) * kCharacterOfName);
    }
    pitch_ = lanes_ <= 8 ? 76 : lanes_ <= 16 ? 44 : 32;
    height_ = lanes_ <= 8 ? 34 : lanes_ <= 16 ? 24 : 20;
  }

  // "rank 3", or "rank 3, node 1" where there are several nodes.
  std::string NameOf(const Lane& lane) const {
    return absl::StrCat("rank ", lane.rank, several_nodes_ ? absl::StrCat(", node ", lane.node) : "");
  }
  double left() const { return left_; }
  double right() const { return kPictureWidth - kPictureMargin; }
  double x(double time) const { return left() + (seconds_ > 0 ? time / seconds_ : 0) * (right() - left()); }
  double y(std::size_t lane) const { return above(lane) + (pitch_ - height_) / 2; }
  double above(std::size_t lane) const { return top_ + pitch_ * static_cast<double>(lane); }
  double height() const { return height_; }
  double top() const { return top_; }
  double bottom() const { return top_ + pitch_ * static_cast<double>(lanes_); }
  double seconds() const { return seconds_; }

 private:
  const double seconds_;
  const double top_;
  const std::size_t lanes_;
  bool several_nodes_ = false;
  double left_ = 0;
  double pitch_ = 0;
  double height_ = 0;
};

// The distance of the marks of an axis of so many seconds: 1, 2 or 5 times a power of ten, for about ten marks.
double Distance(double seconds) {
  const double power = std::pow(10, std::floor(std::log10(seconds / 10)));
  for (const double times : {1.0, 2.0, 5.0}) {
    if (seconds / (times * power) <= 12) return times * power;
  }
  return 10 * power;
}

std::string DrawAxis(const Paper& paper) {
  std::string svg = SvgLine(paper.left(), paper.bottom(), paper.right(), paper.bottom(), "#888888", 1);
  const std::pair<const char*, double> units[] = {{"s", 1}, {"ms", 1e-3}, {"µs", 1e-6}, {"ns", 1e-9}};
  const auto* unit = std::find_if(std::begin(units), std::end(units) - 1,
                                  [&](const auto& of) { return paper.seconds() >= 2 * of.second; });
  if (paper.seconds() > 0) {
    const double distance = Distance(paper.seconds());
    for (int i = 0; i * distance <= paper.seconds() * (1 + 1e-9); ++i) {
      const double x = paper.x(i * distance);
      absl::StrAppend(
          &svg, SvgLine(x, paper.top(), x, paper.bottom() + 5, "#dddddd", 1),
          SvgText(x, paper.bottom() + 19, 12, "middle", absl::StrFormat("%g", i * distance / unit->second)));
    }
  }
  return svg + SvgText((paper.left() + paper.right()) / 2, paper.bottom() + 40, 13, "middle",
                       absl::StrCat("predicted time since the common start (", unit->first, ")"));
}

std::string Rect(double x, double y, double width, double height, absl::string_view color, absl::string_view more) {
  return absl::StrFormat("<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"%s/>\n", x, y, width,
                         height, color, more);
}

std::string DrawBar(const Bar& bar, const Paper& paper, std::size_t lane) {
  const double x = paper.x(bar.begin);
  const double width = std::max(paper.x(bar.end) - x, kThinnest);
  const double top = paper.y(lane), height = paper.height();
  std::string svg = absl::StrCat("<g><title>", Escaped(bar.labels[0]),
                                 absl::StrFormat(", %.2f to %.2f µs</title>\n", bar.begin * 1e6, bar.end * 1e6));
  double y = top;
  for (const BarShare& share : bar.shares) {
    absl::StrAppend(&svg, Rect(x, y, width, height * share.part, LookOf(share.kind).color,
                               absl::StrCat(" data-kind=\"", Name(share.kind), "\"")));
    y += height * share.part;
  }
  if (bar.steps > 0 && width > 3) {
    absl::StrAppend(&svg, Rect(x, top, width, height, "none", " stroke=\"#ffffff\" stroke-width=\"0.8\""));
  }
  for (const std::string& label : bar.labels) {
    if (Characters(label) * kCharacter > width - 4) continue;
    absl::StrAppend(&svg, SvgText(x + width / 2, top + height / 2 + 4, 11, "middle", label,
                                  bar.steps == 0 ? " fill=\"#666666\"" : ""));
    break;
  }
  return svg + "</g>\n";
}

std::string DrawLane(const Lane& lane, const Paper& paper, std::size_t number) {
  const double y = paper.y(number);
  std::string svg = absl::StrFormat("<g class=\"lane\" data-rank=\"%d\" data-top=\"%.1f\" data-bottom=\"%.1f\">\n",
                                    lane.rank, y, y + paper.height());
  absl::StrAppend(&svg, SvgText(kPictureMargin, y + paper.height() / 2 + 4, 13, "start", paper.NameOf(lane)));
  for (const Bar& bar : lane.bars) absl::StrAppend(&svg, DrawBar(bar, paper, number));
  return svg + "</g>\n";
}

// The size of one message of an arrow, on average.
std::string SizeOf(const Arrow& arrow) { return BytesInWords(arrow.bytes / arrow.count); }

// The size of every message, when all are of one size; otherwise empty.
std::string CommonSize(const Timeline& timeline) {
  std::string common;
  for (const Arrow& arrow : timeline.arrows) {
    if (arrow.signal) continue;
    if (!common.empty() && SizeOf(arrow) != common) return "";
    common = SizeOf(arrow);
  }
  return common;
}

// Arrows and their labels. A label that would lie on another one is left out.
class ArrowPainter {
 public:
  ArrowPainter(const Timeline& timeline, const Paper& paper)
      : timeline_(timeline), paper_(paper), sizes_differ_(CommonSize(timeline).empty()) {}

  std::string Draw() {
    std::string lines, labels;
    for (const Arrow& arrow : timeline_.arrows) {
      const bool down = arrow.to_lane > arrow.from_lane;
      const double y1 = paper_.y(arrow.from_lane) + (down ? paper_.height() : 0);
      const double y2 = paper_.y(arrow.to_lane) + (down ? 0 : paper_.height());
      absl::StrAppend(&lines, Line(arrow, y1, y2));
      const bool is_labelled = !arrow.signal && (sizes_differ_ || arrow.count > 1);
      if (is_labelled && timeline_.lanes.size() <= kLabelledLanes)
        absl::StrAppend(&labels, Label(arrow, down ? y1 + 13 : y1 - 5));
    }
    return lines + labels;
  }

  static bool IsSeveral(const Arrow& arrow) { return arrow.count > 1 && !arrow.signal; }
  // Arrows that pass other lanes than the next are paler, so that what lies below them can be read.
  static bool IsPale(const Arrow& arrow) { return Lanes(arrow) > 2; }

 private:
  static std::size_t Lanes(const Arrow& arrow) {
    return std::max(arrow.to_lane, arrow.from_lane) - std::min(arrow.to_lane, arrow.from_lane);
  }

  // Arrows in opposite directions, and across several lanes, bend to different sides, so that none hides another.
  std::string Line(const Arrow& arrow, double y1, double y2) const {
    const double x1 = paper_.x(arrow.left), x2 = paper_.x(arrow.taken);
    const bool down = arrow.to_lane > arrow.from_lane;
    const auto lanes = static_cast<double>(Lanes(arrow));
    const double bend = lanes == 1 ? (down ? 3 : -3) : std::min(kWidestBend, lanes * (down ? 6.0 : 12.0));
    return absl::StrFormat(
        "<path class=\"arrow\" data-from=\"%d\" data-to=\"%d\" d=\"M%.1f %.1fQ%.1f %.1f %.1f %.1f\" fill=\"none\" "
        "stroke=\"%s\" stroke-width=\"%g\"%s%s marker-end=\"url(#%s)\"/>\n",
        timeline_.lanes[arrow.from_lane].rank, timeline_.lanes[arrow.to_lane].rank, x1, y1, (x1 + x2) / 2 + bend,
        (y1 + y2) / 2, x2, y2, arrow.signal ? kSignalColor : kMessageColor, IsSeveral(arrow) && lanes <= 2 ? 2.0 : 1.1,
        IsPale(arrow) ? kPale : "", arrow.signal ? " stroke-dasharray=\"4 3\"" : "",
        arrow.signal ? "signal" : "message");
  }

  // At the sender, because the ends of arrows from far lanes lie close to others.
  std::string Label(const Arrow& arrow, double y) {
    const std::string size = arrow.count == 1 ? SizeOf(arrow) : absl::StrCat(arrow.count, " × ", SizeOf(arrow));
    const double x = paper_.x(arrow.left) + 5;
    const double end = x + Characters(size) * kCharacter;
    double& free = free_[{arrow.from_lane, arrow.to_lane > arrow.from_lane}];
    if (x < free || end > kPictureWidth) return "";
    free = end;
    return SvgText(x, y, 11, "start", size, " stroke=\"#ffffff\" stroke-width=\"3\" paint-order=\"stroke\"");
  }

  const Timeline& timeline_;
  const Paper& paper_;
  const bool sizes_differ_;
  std::map<std::pair<std::size_t, bool>, double> free_;  // where labels end, by lane: above and below it
};

// The heads of the arrows.
std::string Heads() {
  std::string svg = "<defs>\n";
  for (const auto& [name, color] : {std::pair("message", kMessageColor), std::pair("signal", kSignalColor)}) {
    absl::StrAppendFormat(&svg,
                          "<marker id=\"%s\" viewBox=\"0 0 10 10\" refX=\"10\" refY=\"5\" markerWidth=\"7\" "
                          "markerHeight=\"7\" markerUnits=\"userSpaceOnUse\" orient=\"auto\"><path d=\"M0 "
                          "1L10 5L0 9z\" fill=\"%s\"/></marker>\n",
                          name, color);
  }
  return svg + "</defs>\n";
}

// A sample, drawn at (0, 0), and what it means.
struct LegendEntry {
  std::string sample;
  std::string meaning;
};

std::vector<LegendEntry> LegendOf(const Timeline& timeline) {
  std::vector<LegendEntry> entries;
  for (const StepKind kind : timeline.kinds) {
    entries.push_back({Rect(0, -12, 30, 15, LookOf(kind).color, absl::StrCat(" data-legend=\"", Name(kind), "\"")),
                       LookOf(kind).meaning});
  }
  const auto arrow = [](bool signal, double width) {
    return absl::StrFormat(
        "<line x1=\"0\" y1=\"-5\" x2=\"30\" y2=\"-5\" stroke=\"%s\" stroke-width=\"%g\"%s marker-end=\"url(#%s)\"/>\n",
        signal ? kSignalColor : kMessageColor, width, signal ? " stroke-dasharray=\"4 3\"" : "",
        signal ? "signal" : "message");
  };
  const auto any = [&](auto is) { return std::any_of(timeline.arrows.begin(), timeline.arrows.end(), is); };
  if (any([](const Arrow& of) { return !of.signal && !ArrowPainter::IsSeveral(of); })) {
    const std::string size = CommonSize(timeline);
    entries.push_back({arrow(false, 1.1),
                       absl::StrCat("message", size.empty() ? "" : " of ", size, ", until its receiver turns to it")});
  }
  if (any(ArrowPainter::IsSeveral)) {
    entries.push_back({arrow(false, 2), "several messages; the arrow is the first"});
  }
  if (any(ArrowPainter::IsPale)) {
    entries.push_back(
        {absl::StrCat("<g", kPale, ">", arrow(false, 1.1), "</g>\n"), "paler arrow: passes more than one rank"});
  }
  if (any([](const Arrow& of) { return of.signal; })) {
    entries.push_back({arrow(true, 1.1), "the last signal that a rank waits for"});
  }
  const bool mixed = std::any_of(timeline.lanes.begin(), timeline.lanes.end(), [](const Lane& lane) {
    return std::any_of(lane.bars.begin(), lane.bars.end(), [](const Bar& bar) { return bar.shares.size() > 1; });
  });
  if (mixed) {
    entries.push_back({Rect(0, -12, 30, 6, "#aaaaaa", "") + Rect(0, -6, 30, 9, "#cccccc", ""),
                       "several steps: heights are shares of the time"});
  }
  if (timeline.mapped) entries.push_back({"", "mapped: in the memory of other ranks"});
  return entries;
}

std::string DrawLegend(const std::vector<LegendEntry>& entries, double top) {
  const double column = (kPictureWidth - 2 * kPictureMargin) / kLegendColumns;
  std::string svg;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const std::size_t line = i / kLegendColumns;
    absl::StrAppendFormat(&svg, "<g transform=\"translate(%.1f %.1f)\">\n%s%s</g>\n",
                          kPictureMargin + column * static_cast<double>(i % kLegendColumns),
                          top + kLine * static_cast<double>(line), entries[i].sample,
                          SvgText(38, 0, 13, "start", entries[i].meaning));
  }
  return svg;
}

// `notes`, cut between words into lines that the heading has room for.
std::vector<std::string> Lines(absl::Span<const std::string> notes) {
  std::vector<std::string> lines;
  for (const std::string& note : notes) {
    std::string line;
    for (const absl::string_view word : absl::StrSplit(note, ' ')) {
      if (!line.empty() && Characters(line) + 1 + Characters(word) > kMaxNoteCharacters)
        lines.push_back(std::exchange(line, ""));
      absl::StrAppend(&line, line.empty() ? "" : " ", word);
    }
    lines.push_back(line);
  }
  return lines;
}

}  // namespace

std::string SvgOf(const Timeline& timeline, absl::string_view title, absl::Span<const std::string> notes) {
  std::vector<std::string> all(notes.begin(), notes.end());
  all.insert(all.end(), timeline.notes.begin(), timeline.notes.end());
  const std::vector<std::string> lines = Lines(all);
  const std::vector<LegendEntry> legend = LegendOf(timeline);
  const double below = BelowHeading(lines) + 10;
  const Paper paper(timeline, below + kLine * std::ceil(static_cast<double>(legend.size()) / kLegendColumns));
  std::string body = absl::StrCat(Heads(), SvgHeading(title, lines), DrawLegend(legend, below), DrawAxis(paper));
  const bool share_nodes =
      std::adjacent_find(timeline.lanes.begin(), timeline.lanes.end(),
                         [](const Lane& a, const Lane& b) { return a.node == b.node; }) != timeline.lanes.end();
  for (std::size_t i = 0; i < timeline.lanes.size(); ++i) {
    if (share_nodes && i > 0 && timeline.lanes[i].node != timeline.lanes[i - 1].node) {
      absl::StrAppend(&body, SvgLine(kPictureMargin, paper.above(i), paper.right(), paper.above(i), "#999999", 1));
    }
    absl::StrAppend(&body, DrawLane(timeline.lanes[i], paper, i));
  }
  absl::StrAppend(&body, ArrowPainter(timeline, paper).Draw());
  return SvgPicture(paper.bottom() + 56, absl::StrCat(title, "\n", absl::StrJoin(all, "\n")), body);
}

}  // namespace tutti::cli
