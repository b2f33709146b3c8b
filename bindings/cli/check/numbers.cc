#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "bindings/cli/check/checks.h"
#include "bindings/cli/check/current_case.h"
#include "bindings/cli/local_ranks.h"
#include "bindings/cli/pattern.h"

namespace tutti::cli {
namespace {

constexpr std::int64_t kElement = sizeof(float);

// What is wrong with the output of a call; OK if nothing is.
absl::Status Compare(const Traffic& traffic, Pattern& pattern, const std::byte* output) {
  const auto count = static_cast<std::size_t>(traffic.output_count());
  std::vector<float> expected(count);
  std::vector<float> got(count);
  for (const Piece& piece : traffic.expected()) {
    pattern.Write(piece.source, piece.first, piece.count, reinterpret_cast<std::byte*>(expected.data() + piece.at));
  }
  if (traffic.expected().empty()) return absl::OkStatus();  // a rank without an output
  std::memcpy(got.data(), output, count * kElement);
  std::size_t wrong = 0;
  std::size_t first = 0;
  for (std::size_t i = count; i-- > 0;) {
    if (got[i] == expected[i]) continue;
    ++wrong;
    first = i;
  }
  if (wrong == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(wrong, " of ", count, " elements are wrong: element ", first,
                                                    " is ", got[first], ", expected ", expected[first]));
}

// Makes one call on this rank. Unimplemented: the schedule does not serve it.
absl::Status MakeCall(Communicator& world, const Schedule& schedule, const TrafficOptions& options,
                      std::int64_t count) {
  const absl::StatusOr<Traffic> traffic =
      MakeTraffic(schedule.collective, options, /*bytes=*/0, count, world.rank(), world.size());
  if (!traffic.ok()) return traffic.status();
  Pattern pattern(options.dtype, options.op, world.size());
  const bool in_place = traffic->spec.in_place;
  const std::int64_t inputs = in_place ? traffic->in_place_count() : traffic->input_count();
  const absl::StatusOr<Buffer> in = world.Allocate(inputs * kElement);
  if (!in.ok()) return in.status();
  const absl::StatusOr<Buffer> out = world.Allocate(in_place ? 0 : traffic->output_count() * kElement);
  if (!out.ok()) return out.status();
  std::byte* const input = in->data() + (in_place ? traffic->in_place_input() * kElement : 0);
  std::byte* const output = in_place ? in->data() + traffic->in_place_output() * kElement : out->data();
  pattern.Write(world.rank(), 0, traffic->input_count(), input);
  CollectiveSpec spec = traffic->spec;
  spec.in_place = false;  // the communicator finds that out from the pointers
  if (absl::Status status = world.Call(spec, input, output, {.schedule = &schedule}).Wait(); !status.ok())
    return status;
  absl::Status compared = Compare(*traffic, pattern, output);
  if (compared.ok()) return compared;
  return {compared.code(), absl::StrCat("rank ", world.rank(), ": ", compared.message())};
}

struct CallWorld {
  absl::string_view text;
  CommunicatorOptions::Mapping mapping = CommunicatorOptions::Mapping::kAuto;
  int ranks_per_node = 0;
};
constexpr CallWorld kCallWorlds[] = {{"in mapped memory"},
                                     {"by messages", CommunicatorOptions::Mapping::kNever},
                                     {"on nodes of two ranks", CommunicatorOptions::Mapping::kAuto, 2}};

// The calls of a schedule that were made.
class Calls {
 public:
  explicit Calls(const Schedule& schedule) : schedule_(schedule) {}

  // Makes the calls of a world. FailedPrecondition: a call has failed or has given wrong results.
  absl::Status MakeIn(const CallWorld& world, int size) {
    const std::string where = absl::StrCat(size, " ranks ", world.text);
    SetCurrentCase(absl::StrCat("calls of ", where));
    std::atomic<bool> failed = false;
    absl::Status status = RunLocalRanks(
        size, "inproc",
        [&](Rank) {
          CommunicatorOptions options;
          options.mapping = world.mapping;
          options.segment_bytes = 64;  // so that short buffers have several segments
          return options;
        },
        [&](Communicator& communicator) {
          absl::Status made = MakeOn(communicator, where);
          failed = failed || !made.ok();
          return made;
        },
        world.ranks_per_node);
    // What hinders ranks before their calls, and a lack of memory, is not the schedule's.
    if (!failed || absl::IsResourceExhausted(status)) return status;
    return absl::FailedPreconditionError(status.message());
  }

  int made() const { return made_.load(); }

 private:
  // Makes the calls of one rank.
  absl::Status MakeOn(Communicator& communicator, absl::string_view where) {
    for (const std::int64_t count : {0, 1, communicator.size() + 1, 97, 4099}) {
      for (const bool in_place : {true, false}) {
        const std::string what = absl::StrCat(where, ", count ", count, in_place ? ", in place" : ", out of place");
        SetCurrentCase(absl::StrCat("a call of ", what));
        const int root = HasRoot(schedule_.collective) ? communicator.size() / 2 : 0;
        const absl::Status made = MakeCall(communicator, schedule_, {.root = root, .in_place = in_place}, count);
        if (absl::IsUnimplemented(made)) continue;
        if (!made.ok()) return {made.code(), absl::StrCat(what, ": ", made.message())};
        if (communicator.rank() == 0) ++made_;
      }
    }
    return absl::OkStatus();
  }

  const Schedule& schedule_;
  std::atomic<int> made_ = 0;
};

}  // namespace

absl::StatusOr<std::string> CheckNumbers(const Schedule& schedule) {
  Calls calls(schedule);
  for (int size = 1; size <= kRanksOfCheck; ++size) {
    for (const CallWorld& world : kCallWorlds) {
      if (size <= world.ranks_per_node) continue;  // one node, as in mapped memory
      if (absl::Status status = calls.MakeIn(world, size); !status.ok()) return status;
    }
  }
  constexpr absl::string_view kCounts = "counts 0, 1, ranks + 1, 97 and 4099 of f32";
  if (calls.made() == 0) {
    return absl::StrCat("no result was compared, because the schedule serves none of the calls that were tried: ",
                        kCounts);
  }
  return absl::StrCat("the results of ", calls.made(), " calls are right, element by element: ", kCounts);
}

}  // namespace tutti::cli
