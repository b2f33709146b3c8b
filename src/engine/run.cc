#include "engine/run.h"

#include "absl/strings/str_cat.h"
#include "engine/call.h"
#include "engine/channel.h"

namespace tutti {

std::string Blocker::Place() const {
  return step == kNoStep ? std::string(what) : absl::StrCat("step ", step, " (", what, ")");
}

std::string Run::Text() const {
  const std::string tag = program.point_to_point ? absl::StrCat(" tag=", call.options().tag) : "";
  return absl::StrCat("call ", ticket.sequence, ", ", program.plan.name, " ", ToString(program.plan.spec), tag);
}

std::string Run::What() const { return absl::StrCat(program.plan.name, " ", ToString(program.plan.spec)); }

std::uint64_t DrawOf(const Run& run, StepId step) {
  constexpr std::uint64_t kOdd = 0x9E3779B97F4A7C15u;
  const auto rank = static_cast<std::uint64_t>(run.program.plan.rank);
  return (run.call.options().draw * kOdd + rank) * kOdd + step;
}

Run::Run(Call& its_call, Channel& its_channel, const Program& its_program)
    : call(its_call), channel(its_channel), program(its_program), current(&its_program) {
  const auto size = static_cast<std::size_t>(channel.size());
  bases.resize(kSpaces + kPeerSpaces * size);
  ticket.known_since.resize(size);
  ticket.first_message.resize(program.messages.size());
}

}  // namespace tutti
