// All-to-all, native: a transport beside the messages, such as NCCL on GPUs, performs the whole call.
//
// Steps per rank: 1. Bytes that must enter or leave a rank, at least: (n-1)·C bytes (C: one block).
#include "tutti/schedule.h"
#include "tutti/schedules/native_call.h"

TUTTI_SCHEDULE(all_to_all, native) = {
    .collective = tutti::Collective::kAllToAll,
    .name = "native",
    .summary = "a transport performs the whole collective, as NCCL does on GPUs",
    .cost = "1 native step, (n-1)·C bytes (C: one block)",
    .supports = tutti::schedules::SupportsNative,
    .build = tutti::schedules::BuildNative,
};
