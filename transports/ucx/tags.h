// The tags of UCX: a bit that tells whether a message is an announcement (announced.cc), 15 bits for the rank of the
// sender, then the 48 bits of the caller's tag.
#ifndef TUTTI_TRANSPORTS_UCX_TAGS_H_
#define TUTTI_TRANSPORTS_UCX_TAGS_H_

#include <cstdint>

#include "transports/ucx/library.h"
#include "tutti/transport.h"

namespace tutti::ucx {

constexpr ucp_tag_t TagOf(Rank source, std::uint64_t tag) { return (static_cast<ucp_tag_t>(source) << kTagBits) | tag; }
// The source of control messages, whose text names the sender: no real rank has this number.
inline constexpr Rank kControlSource = 0x7FFF;
inline constexpr ucp_tag_t kAnnounces = ucp_tag_t{1} << 63;
constexpr Rank SourceOf(ucp_tag_t tag) { return static_cast<Rank>((tag & ~kAnnounces) >> kTagBits); }

// The bits of the caller's tag, of its group, and of the sender.
inline constexpr ucp_tag_t kTagMask = (ucp_tag_t{1} << kTagBits) - 1;
inline constexpr ucp_tag_t kGroupMask = kTagMask & ~((ucp_tag_t{1} << kGroupShift) - 1);
inline constexpr ucp_tag_t kSourceMask = ~kTagMask & ~kAnnounces;

}  // namespace tutti::ucx

#endif  // TUTTI_TRANSPORTS_UCX_TAGS_H_
