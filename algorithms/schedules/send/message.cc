// Send: one message to the peer, which must call recv with equal count and dtype.
//
// Steps: 1. Bytes sent: the whole buffer.
#include "tutti/schedule.h"

namespace tutti::schedules {
namespace {

void Build(PlanBuilder& b) { b.Send(b.spec().root, b.in()); }

}  // namespace
}  // namespace tutti::schedules

TUTTI_SCHEDULE(send, message) = {
    .collective = tutti::Collective::kSend,
    .name = "message",
    .summary = "one message",
    .cost = "1 step, S bytes",
    .supports = tutti::SupportsAll,
    .build = tutti::schedules::Build,
};
