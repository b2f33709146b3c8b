// Reduce-scatter, native: a transport beside the messages, such as NCCL on GPUs, performs the whole call.
//
// The order of the additions is the transport's, and sums of 16-bit types are rounded more than once
// (docs/decisions/0030-native-steps.md).
//
// Steps per rank: 1. Bytes that must enter or leave a rank, at least: (n-1)·C bytes (C: one rank's output).
#include "tutti/schedule.h"
#include "tutti/schedules/native_call.h"

TUTTI_SCHEDULE(reduce_scatter, native) = {
    .collective = tutti::Collective::kReduceScatter,
    .name = "native",
    .summary = "a transport performs the whole collective, as NCCL does on GPUs",
    .cost = "1 native step, (n-1)·C bytes (C: one rank's output)",
    .supports = tutti::schedules::SupportsNative,
    .build = tutti::schedules::BuildNative,
};
