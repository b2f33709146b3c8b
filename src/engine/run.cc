#include "engine/run.h"

#include "absl/strings/str_cat.h"
#include "engine/call.h"
#include "engine/channel.h"
#include "tutti/codecs/random.h"

namespace tutti {

std::string Blocker::Place() const {
  return step == kNoStep ? std::string(what) : absl::StrCat("step ", step, " (", what, ")");
}

std::string Run::Text() const {
  const bool has_tag = program.point_to_point && program.stream_order == nullptr;
  const std::string tag = has_tag ? absl::StrCat(" tag=", call.options().tag) : "";
  return absl::StrCat("call ", ticket.sequence, ", ", What(), tag);
}

std::string Run::What() const {
  if (program.takes_messages) return absl::StrCat(program.plan.name, " of ", stream_messages().size(), " messages");
  return absl::StrCat(program.plan.name, " ", ToString(program.plan.spec));
}

absl::Status Run::SetMessages(absl::Span<const NativeCall> /*calls*/) {
  return absl::UnimplementedError(absl::StrCat(program.plan.name, " takes no messages"));
}

std::uint64_t DrawOf(const Run& run, StepId step) {
  const auto rank = static_cast<std::uint64_t>(run.program.plan.rank);
  return (run.call.options().draw * kernels::kGoldenRatio64 + rank) * kernels::kGoldenRatio64 + step;
}

Run::Run(Call& its_call, Channel& its_channel, const Program& its_program)
    : call(its_call), channel(its_channel), program(its_program), current(&its_program) {
  const auto size = static_cast<std::size_t>(channel.size());
  bases.resize(kSpaces + kPeerSpaces * size);
  if (program.for_private_buffers != nullptr && program.for_private_buffers->reads_processes) in_process.resize(size);
  ticket.known_since.resize(size);
  ticket.first_message.resize(program.messages.size());
}

}  // namespace tutti
