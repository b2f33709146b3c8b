#include "bindings/cli/docs/markdown.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "tutti/algorithm.h"
#include "tutti/codec.h"
#include "tutti/peer_selection.h"
#include "tutti/schedule.h"

namespace tutti::cli {
namespace {

// `text` escaped for a cell of a table.
std::string Cell(absl::string_view text) { return absl::StrReplaceAll(text, {{"|", "\\|"}}); }

std::string Options(const Algorithm& algorithm) {
  if (algorithm.options.empty() && algorithm.codec.empty()) return "No options.\n";
  std::string text = "| option | default | values | meaning |\n|---|---|---|---|\n";
  for (const AlgorithmOption& option : algorithm.options) {
    absl::StrAppend(&text, "| `", option.name, "` | `", Cell(option.default_value), "` | ", Cell(option.values), " | ",
                    Cell(option.doc), " |\n");
  }
  if (!algorithm.codec.empty()) {
    absl::StrAppend(&text, "| `codec` | `", algorithm.codec, "` | ", algorithm.codec == "none" ? "none, or " : "",
                    "a [codec](#codecs) | how elements become bytes; the options of the codec can be given too |\n");
  }
  return text;
}

// "`block=1024` `rounding=nearest`": what a codec takes, with its defaults.
std::string Defaults(const Codec& codec) {
  return absl::StrJoin(absl::StrSplit(codec.options, ", "), " ", [&](std::string* out, absl::string_view name) {
    absl::StrAppend(out, "`", name, "=", OptionText(codec.defaults, name), "`");
  });
}

std::string Codecs() {
  std::string text =
      "\n## Codecs\n\nWhat `codec=` chooses from: how numbers become fewer bytes. In all of them a NaN or Inf shows: "
      "it makes "
      "its\nblock decode to NaN, or with `bf16` and `fp16` stays what it is. Zero stays zero, but for what the table "
      "says.\n\n"
      "| codec | how it works | options | largest error of a finite number |\n|---|---|---|---|\n";
  for (const Codec* codec : AllCodecs()) {
    absl::StrAppend(&text, "| `", codec->name, "` | ", Cell(codec->summary), " | ", Defaults(*codec), " | ",
                    Cell(codec->error_bound), " |\n");
  }
  absl::StrAppend(&text, "\n| option of codecs | values | meaning |\n|---|---|---|\n");
  for (const AlgorithmOption& option : CodecOptionTable()) {
    absl::StrAppend(&text, "| `", option.name, "` | ", Cell(option.values), " | ", Cell(option.doc), " |\n");
  }
  return text;
}

}  // namespace

std::string AlgorithmsMarkdown() {
  std::string text =
      "# Algorithms\n\n"
      "How the replicas of a model are kept in step. A strategy name selects an algorithm and its options:\n"
      "`\"bytegrad:codec=uint8_block,block=512\"`; what is left out has its default.\n"
      "This page is printed by `tutti docs algorithms`; a test compares the two.\n\n"
      "N is the bytes of the gradients, or of the weights, where they are f32. Without a codec those of 16 bits\n"
      "take half of what the table says; a codec sends as many bytes for them as for f32.\n\n"
      "| algorithm | what it does | exchanges | when | bytes on the wire, per rank |\n|---|---|---|---|---|\n";
  for (const Algorithm* algorithm : AllAlgorithms()) {
    absl::StrAppend(&text, "| [`", algorithm->name, "`](algorithms/", algorithm->name, ".md) | ",
                    Cell(algorithm->summary), " | ", Name(algorithm->exchanges), " | ", Name(algorithm->phase), " | ",
                    Cell(algorithm->cost), " |\n");
  }
  for (const Algorithm* algorithm : AllAlgorithms()) {
    absl::StrAppend(&text, "\n## ", algorithm->name, "\n\n", Options(*algorithm));
  }
  absl::StrAppend(&text,
                  "\n## Peer selections\n\nWhat `peer_selection_mode=` chooses from: with whom a rank mixes its "
                  "weights.\n\n| peer selection | with whom |\n|---|---|\n");
  for (const PeerSelection* selection : AllPeerSelections()) {
    absl::StrAppend(&text, "| `", selection->name, "` | ", Cell(selection->summary), " |\n");
  }
  return text + Codecs();
}

std::string SchedulesMarkdown() {
  std::string text =
      "# Schedules\n\n"
      "How each collective moves bytes: n ranks, S bytes. `tutti plan all_reduce` says which schedule is chosen and "
      "why;\n"
      "`tutti plan all_reduce:ring` prints, draws, costs and verifies the steps of one ([plans.md](plans.md)).\n"
      "This page is printed by `tutti docs schedules`; a test compares the two.\n";
  for (Collective collective : kAllCollectives) {
    absl::StrAppend(&text, "\n## ", Name(collective), "\n\n| schedule | how it works | cost |\n|---|---|---|\n");
    for (const Schedule* schedule : AllSchedules()) {
      if (schedule->collective != collective) continue;
      absl::StrAppend(&text, "| `", schedule->name, "` | ", Cell(schedule->summary), " | ", Cell(schedule->cost),
                      " |\n");
    }
  }
  return text;
}

}  // namespace tutti::cli
