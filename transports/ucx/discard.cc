// Messages that the UCX transport throws away: those of discarded groups, and those of lost peers that still send. What
// comes over wires is not kept (wired_arrivals.cc). UCX keeps a message that nobody receives, so each is taken out of
// UCX's queue and received into no memory. The receive ends with an error, because the message is too long for it, and
// answers a sender that has only announced the message.
#include <algorithm>

#include "transports/errors.h"
#include "transports/ucx/tags.h"
#include "transports/ucx/transport.h"

namespace tutti::ucx {
namespace {

// The limits of one call: messages thrown away, and groups and peers for whose messages UCX's queue is searched.
constexpr int kMessagesAtOnce = 1024;
constexpr std::size_t kSearchesAtOnce = 256;

constexpr ucp_tag_t TagOfGroup(std::uint32_t group) { return static_cast<ucp_tag_t>(group) << kGroupShift; }

}  // namespace

void UcxTransport::Discard(std::uint32_t group) {
  if (worker_ == nullptr || shut_down_ || !discarded_.Add(group)) return;
  for (Operation& operation : operations_) {
    if (operation.completion == nullptr || !operation.receives || GroupOf(operation.tag) != group) continue;
    operation.discarded = true;
    if (operation.request != nullptr) ucp_.ucp_request_cancel(worker_->get(), operation.request);
  }
  const auto is_discarded = [](const Operation& operation) { return operation.discarded; };
  const auto why = [](const Operation& op) { return HasBeenDiscarded(op.peer, GroupOf(op.tag)); };
  EndReads(is_discarded, why);
  EndWiredRecvs(is_discarded, why);
  DropArrivals([group](Rank /*source*/, std::uint64_t tag) { return GroupOf(tag) == group; });
  queued_.TakeIf([&](std::uint64_t tag, const QueuedRecv& recv) {
    if (GroupOf(tag) == group) ended_.End(recv.completion, HasBeenDiscarded(recv.source, group));
    return GroupOf(tag) == group;
  });
  ThrowAway(TagOfGroup(group), kGroupMask, kMessagesAtOnce);
}

void UcxTransport::Accept(std::uint32_t group) {
  discarded_.Remove(group);
  if (worker_ == nullptr || shut_down_) return;
  // The ranks of the number's last group have left, and what they sent can be taken in. One exception is harmless,
  // because thousands of groups have ended since: what a rank whose memory is mapped has sent over wires may come after
  // the end of the group has shown in memory.
  ProgressAll();
  DropArrivals([group](Rank /*source*/, std::uint64_t tag) { return GroupOf(tag) == group; });
  while (ThrowAway(TagOfGroup(group), kGroupMask, kMessagesAtOnce) == kMessagesAtOnce) {  // each call has a limit
  }
}

// Control messages, whose tags have no group, are not found: a receive is always posted for them.
void UcxTransport::ThrowAwayUnwanted() {
  const std::vector<Loss>& losses = health_.losses();
  const std::size_t searches = discarded_.size() + losses.size();
  ucp_tag_recv_info_t info;
  const bool idle = searches == 0 || ucp_.ucp_tag_probe_nb(worker_->get(), 0, 0, /*remove=*/0, &info) == nullptr;
  if (idle) return;
  int left = kMessagesAtOnce;
  // The groups that were discarded last are the likeliest to get messages, and are searched for in each call.
  for (std::size_t i = 0; i < std::min(discarded_.size(), kSearchesAtOnce) && left > 0; ++i) {
    left -= ThrowAway(TagOfGroup(discarded_[discarded_.size() - 1 - i]), kGroupMask, left);
  }
  for (std::size_t i = 0; i < std::min(searches, kSearchesAtOnce) && left > 0; ++i) {
    swept_ = (swept_ + 1) % searches;
    left -= swept_ < discarded_.size()
                ? ThrowAway(TagOfGroup(discarded_[swept_]), kGroupMask, left)
                : ThrowAway(TagOf(losses[swept_ - discarded_.size()].peer, 0), kSourceMask, left);
  }
}

int UcxTransport::ThrowAway(ucp_tag_t tag, ucp_tag_t mask, int most) {
  for (int thrown = 0; thrown < most; ++thrown) {
    ucp_tag_recv_info_t info;
    const ucp_tag_message_h message = ucp_.ucp_tag_probe_nb(worker_->get(), tag, mask, /*remove=*/1, &info);
    if (message == nullptr) return thrown;
    ThrowAway(message, info);
  }
  return most;
}

void UcxTransport::ThrowAway(ucp_tag_message_h message, const ucp_tag_recv_info_t& info) {
  const Rank source = SourceOf(info.sender_tag);
  if ((info.sender_tag & kAnnounces) != 0 && IsRank(source)) {
    // A receive of no bytes, which nobody waits for: the sender of the message is told that it has been taken.
    static Completion nobody = {.done = [](Completion*, const absl::Status&) {}};
    Operation* operation = NewOperation(&nobody, source, info.sender_tag & kTagMask, 0, true);
    operation->discarded = true;
    return Receive(operation, [&](void* buffer, std::size_t length, const ucp_request_param_t& param) {
      return ucp_.ucp_tag_msg_recv_nbx(worker_->get(), buffer, length, message, &param);
    });
  }
  ucp_request_param_t param = {};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  param.memory_type = UCS_MEMORY_TYPE_HOST;
  Leave(ucp_.ucp_tag_msg_recv_nbx(worker_->get(), nullptr, 0, message, &param));
}

}  // namespace tutti::ucx
