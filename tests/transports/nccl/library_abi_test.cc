// Tutti's own declarations of NCCL's binary interface are those of nccl.h.
#include <cstddef>
#include <type_traits>

#include "gtest/gtest.h"
#include "transports/nccl/library.h"

#if __has_include(<nccl.h>)
#include <nccl.h>

namespace tutti::nccl {
namespace {

static_assert(sizeof(UniqueId) == sizeof(ncclUniqueId) && NCCL_UNIQUE_ID_BYTES == 128);
static_assert(sizeof(Result) == sizeof(ncclResult_t) && sizeof(DataType) == sizeof(ncclDataType_t));
static_assert(sizeof(RedOp) == sizeof(ncclRedOp_t) && sizeof(ScalarResidence) == sizeof(ncclScalarResidence_t));

template <typename Ours, typename Theirs>
constexpr bool Equal(Ours ours, Theirs theirs) {
  return static_cast<int>(ours) == static_cast<int>(theirs);
}

static_assert(Equal(Result::kSuccess, ncclSuccess) && Equal(Result::kUnhandledCudaError, ncclUnhandledCudaError));
static_assert(Equal(Result::kSystemError, ncclSystemError) && Equal(Result::kInternalError, ncclInternalError));
static_assert(Equal(Result::kInvalidArgument, ncclInvalidArgument));
static_assert(Equal(Result::kInvalidUsage, ncclInvalidUsage) && Equal(Result::kRemoteError, ncclRemoteError));
static_assert(Equal(Result::kInProgress, ncclInProgress));
static_assert(Equal(DataType::kInt8, ncclInt8) && Equal(DataType::kUint8, ncclUint8));
static_assert(Equal(DataType::kInt32, ncclInt32) && Equal(DataType::kUint32, ncclUint32));
static_assert(Equal(DataType::kInt64, ncclInt64) && Equal(DataType::kUint64, ncclUint64));
static_assert(Equal(DataType::kFloat16, ncclFloat16) && Equal(DataType::kFloat32, ncclFloat32));
static_assert(Equal(DataType::kFloat64, ncclFloat64) && Equal(DataType::kBfloat16, ncclBfloat16));
static_assert(Equal(RedOp::kSum, ncclSum) && Equal(RedOp::kProd, ncclProd) && Equal(RedOp::kMax, ncclMax));
static_assert(Equal(RedOp::kMin, ncclMin) && Equal(RedOp::kAvg, ncclAvg) && Equal(RedOp::kFirstCreated, ncclNumOps));
static_assert(Equal(ScalarResidence::kDevice, ncclScalarDevice));
static_assert(Equal(ScalarResidence::kHostImmediate, ncclScalarHostImmediate));
static_assert(kNoColor == NCCL_SPLIT_NOCOLOR);
#ifdef NCCL_SHRINK_ABORT
static_assert(kShrinkAbort == NCCL_SHRINK_ABORT && kSymmetricWindow == NCCL_WIN_COLL_SYMMETRIC);
#endif

// nccl.h of another version has another struct: an older one is a prefix of Tutti's, a newer one has Tutti's as prefix.
#if NCCL_VERSION_CODE == 22809
static_assert(sizeof(Config) == sizeof(ncclConfig_t));
#define TUTTI_SAME_FIELD(ours, theirs) static_assert(offsetof(Config, ours) == offsetof(ncclConfig_t, theirs))
TUTTI_SAME_FIELD(size, size);
TUTTI_SAME_FIELD(magic, magic);
TUTTI_SAME_FIELD(version, version);
TUTTI_SAME_FIELD(blocking, blocking);
TUTTI_SAME_FIELD(cga_cluster_size, cgaClusterSize);
TUTTI_SAME_FIELD(min_ctas, minCTAs);
TUTTI_SAME_FIELD(max_ctas, maxCTAs);
TUTTI_SAME_FIELD(net_name, netName);
TUTTI_SAME_FIELD(split_share, splitShare);
TUTTI_SAME_FIELD(traffic_class, trafficClass);
TUTTI_SAME_FIELD(comm_name, commName);
TUTTI_SAME_FIELD(collnet_enable, collnetEnable);
TUTTI_SAME_FIELD(cta_policy, CTAPolicy);
TUTTI_SAME_FIELD(shrink_share, shrinkShare);
TUTTI_SAME_FIELD(nvls_ctas, nvlsCTAs);
TUTTI_SAME_FIELD(channels_per_net_peer, nChannelsPerNetPeer);
TUTTI_SAME_FIELD(nvlink_centric_sched, nvlinkCentricSched);

// Every field of a fresh Config has the value of NCCL's initializer, with which NCCL accepts it.
TEST(LibraryAbiTest, AFreshConfigIsNcclsInitializer) {
  const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
  const Config ours;
  EXPECT_EQ(ours.size, theirs.size);
  EXPECT_EQ(ours.magic, theirs.magic);
  EXPECT_EQ(ours.version, theirs.version);
  EXPECT_EQ(ours.net_name, theirs.netName);
  EXPECT_EQ(ours.comm_name, theirs.commName);
  for (const auto& [mine, nccls] : {std::pair{ours.blocking, theirs.blocking},
                                    {ours.cga_cluster_size, theirs.cgaClusterSize},
                                    {ours.min_ctas, theirs.minCTAs},
                                    {ours.max_ctas, theirs.maxCTAs},
                                    {ours.split_share, theirs.splitShare},
                                    {ours.traffic_class, theirs.trafficClass},
                                    {ours.collnet_enable, theirs.collnetEnable},
                                    {ours.cta_policy, theirs.CTAPolicy},
                                    {ours.shrink_share, theirs.shrinkShare},
                                    {ours.nvls_ctas, theirs.nvlsCTAs},
                                    {ours.channels_per_net_peer, theirs.nChannelsPerNetPeer},
                                    {ours.nvlink_centric_sched, theirs.nvlinkCentricSched}}) {
    EXPECT_EQ(mine, nccls);
  }
}
#endif

// The declared parameters of both, with NCCL's types replaced by Tutti's of the same size.
template <typename Theirs>
struct Ours {
  using Type = Theirs;
};
template <>
struct Ours<ncclResult_t> {
  using Type = Result;
};
template <>
struct Ours<ncclDataType_t> {
  using Type = DataType;
};
template <>
struct Ours<ncclRedOp_t> {
  using Type = RedOp;
};
template <>
struct Ours<ncclScalarResidence_t> {
  using Type = ScalarResidence;
};
template <>
struct Ours<ncclUniqueId> {
  using Type = UniqueId;
};
template <>
struct Ours<ncclConfig_t> {
  using Type = Config;
};
template <>
struct Ours<ncclComm> {
  using Type = OpaqueComm;
};
template <>
struct Ours<ncclWindow_vidmem> {
  using Type = OpaqueWindow;
};
template <typename Theirs>
struct Ours<Theirs*> {
  using Type = typename Ours<Theirs>::Type*;
};
template <typename Returned, typename... Arguments>
struct Ours<Returned (*)(Arguments...)> {
  using Type = typename Ours<Returned>::Type (*)(typename Ours<Arguments>::Type...);
};

#define TUTTI_SAME_FUNCTION(ours, theirs) \
  static_assert(std::is_same_v<decltype(Library::ours), Ours<decltype(&::theirs)>::Type>, #theirs)
TUTTI_SAME_FUNCTION(get_version, ncclGetVersion);
TUTTI_SAME_FUNCTION(get_unique_id, ncclGetUniqueId);
TUTTI_SAME_FUNCTION(get_error_string, ncclGetErrorString);
TUTTI_SAME_FUNCTION(get_last_error, ncclGetLastError);
TUTTI_SAME_FUNCTION(comm_init_rank_config, ncclCommInitRankConfig);
TUTTI_SAME_FUNCTION(comm_finalize, ncclCommFinalize);
TUTTI_SAME_FUNCTION(comm_destroy, ncclCommDestroy);
TUTTI_SAME_FUNCTION(comm_abort, ncclCommAbort);
TUTTI_SAME_FUNCTION(comm_get_async_error, ncclCommGetAsyncError);
TUTTI_SAME_FUNCTION(comm_count, ncclCommCount);
TUTTI_SAME_FUNCTION(comm_user_rank, ncclCommUserRank);
TUTTI_SAME_FUNCTION(group_start, ncclGroupStart);
TUTTI_SAME_FUNCTION(group_end, ncclGroupEnd);
TUTTI_SAME_FUNCTION(all_reduce, ncclAllReduce);
TUTTI_SAME_FUNCTION(reduce, ncclReduce);
TUTTI_SAME_FUNCTION(broadcast, ncclBroadcast);
TUTTI_SAME_FUNCTION(reduce_scatter, ncclReduceScatter);
TUTTI_SAME_FUNCTION(all_gather, ncclAllGather);
TUTTI_SAME_FUNCTION(send, ncclSend);
TUTTI_SAME_FUNCTION(recv, ncclRecv);
TUTTI_SAME_FUNCTION(red_op_create_pre_mul_sum, ncclRedOpCreatePreMulSum);
TUTTI_SAME_FUNCTION(red_op_destroy, ncclRedOpDestroy);
TUTTI_SAME_FUNCTION(comm_split, ncclCommSplit);
TUTTI_SAME_FUNCTION(comm_register, ncclCommRegister);
TUTTI_SAME_FUNCTION(comm_deregister, ncclCommDeregister);
TUTTI_SAME_FUNCTION(mem_alloc, ncclMemAlloc);
TUTTI_SAME_FUNCTION(mem_free, ncclMemFree);
#if NCCL_VERSION_CODE >= 22809
TUTTI_SAME_FUNCTION(comm_shrink, ncclCommShrink);
TUTTI_SAME_FUNCTION(comm_window_register, ncclCommWindowRegister);
TUTTI_SAME_FUNCTION(comm_window_deregister, ncclCommWindowDeregister);
TUTTI_SAME_FUNCTION(all_to_all, ncclAlltoAll);
TUTTI_SAME_FUNCTION(gather, ncclGather);
TUTTI_SAME_FUNCTION(scatter, ncclScatter);
TUTTI_SAME_FUNCTION(comm_revoke, ncclCommRevoke);
#endif

}  // namespace
}  // namespace tutti::nccl
#endif

namespace tutti::nccl {
namespace {

TEST(LibraryAbiTest, IsComparedWhereNcclIsInstalled) {
#if !__has_include(<nccl.h>)
  GTEST_SKIP() << "no nccl.h beside CUDA's headers";
#endif
}

}  // namespace
}  // namespace tutti::nccl
