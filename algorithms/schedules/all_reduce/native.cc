// All-reduce, native: a transport beside the messages, such as NCCL on GPUs, performs the whole call.
//
// The order of the additions is the transport's; all ranks end with the same bits, and sums of 16-bit types are rounded
// more than once (docs/decisions/0030-native-steps.md).
//
// Steps per rank: 1. Bytes that must enter or leave a rank, at least: 2·(n-1)/n·S bytes.
#include "tutti/schedule.h"
#include "tutti/schedules/native_call.h"

TUTTI_SCHEDULE(all_reduce, native) = {
    .collective = tutti::Collective::kAllReduce,
    .name = "native",
    .summary = "a transport performs the whole collective, as NCCL does on GPUs",
    .cost = "1 native step, 2·(n-1)/n·S bytes",
    .supports = tutti::schedules::SupportsNative,
    .build = tutti::schedules::BuildNative,
};
