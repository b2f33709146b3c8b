// A shared object with NCCL's names, for tests of how libraries are found: its functions do nothing but say a version.
#define TUTTI_STUB(name) \
  extern "C" __attribute__((visibility("default"))) int name() { return 0; }

extern "C" __attribute__((visibility("default"))) int ncclGetVersion(int* version) {
  *version = TUTTI_STUB_VERSION;
  return 0;
}
TUTTI_STUB(ncclGetUniqueId)
TUTTI_STUB(ncclGetErrorString)
TUTTI_STUB(ncclGetLastError)
TUTTI_STUB(ncclCommInitRankConfig)
TUTTI_STUB(ncclCommFinalize)
TUTTI_STUB(ncclCommDestroy)
TUTTI_STUB(ncclCommAbort)
TUTTI_STUB(ncclCommGetAsyncError)
TUTTI_STUB(ncclCommCount)
TUTTI_STUB(ncclCommUserRank)
#ifndef TUTTI_STUB_NO_GROUP
TUTTI_STUB(ncclGroupStart)
#endif
TUTTI_STUB(ncclGroupEnd)
TUTTI_STUB(ncclAllReduce)
TUTTI_STUB(ncclReduce)
TUTTI_STUB(ncclBroadcast)
TUTTI_STUB(ncclReduceScatter)
TUTTI_STUB(ncclAllGather)
TUTTI_STUB(ncclSend)
TUTTI_STUB(ncclRecv)
TUTTI_STUB(ncclRedOpCreatePreMulSum)
TUTTI_STUB(ncclRedOpDestroy)
TUTTI_STUB(ncclCommSplit)
#ifdef TUTTI_STUB_SHRINK
TUTTI_STUB(ncclCommShrink)
#endif
TUTTI_STUB(ncclCommRegister)  // without ncclCommDeregister: a feature that is there in part is not there
