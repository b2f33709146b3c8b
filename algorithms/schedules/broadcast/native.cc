// Broadcast, native: a transport beside the messages, such as NCCL on GPUs, performs the whole call.
//
// Steps per rank: 1. Bytes that must enter or leave a rank, at least: S bytes.
#include "tutti/schedule.h"
#include "tutti/schedules/native_call.h"

TUTTI_SCHEDULE(broadcast, native) = {
    .collective = tutti::Collective::kBroadcast,
    .name = "native",
    .summary = "a transport performs the whole collective, as NCCL does on GPUs",
    .cost = "1 native step, S bytes",
    .supports = tutti::schedules::SupportsNative,
    .build = tutti::schedules::BuildNative,
};
