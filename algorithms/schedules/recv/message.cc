// Recv: one message from the peer, which must call send with equal count and dtype.
//
// Steps: 1. Bytes sent: 0.
#include "tutti/schedule.h"

namespace tutti::schedules {
namespace {

void Build(PlanBuilder& b) { b.Recv(b.spec().root, b.out()); }

}  // namespace
}  // namespace tutti::schedules

TUTTI_SCHEDULE(recv, message) = {
    .collective = tutti::Collective::kRecv,
    .name = "message",
    .summary = "one message",
    .cost = "1 step, S bytes received",
    .supports = tutti::SupportsAll,
    .build = tutti::schedules::Build,
};
