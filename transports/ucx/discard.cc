// Messages that the UCX transport throws away: those of discarded groups, and those of lost peers that still send. UCX
// keeps a message that nobody receives, so each is taken out of UCX's queue and received into no memory. That ends the
// message as too long, and answers a sender who has only announced it.
#include <algorithm>

#include "transports/ucx/transport.h"

namespace tutti::ucx {
namespace {

// The most that one call does: so many messages, and searches of UCX's queue for so many groups and peers.
constexpr int kMessagesAtOnce = 1024;
constexpr std::size_t kSearchesAtOnce = 256;

constexpr ucp_tag_t kTag = (ucp_tag_t{1} << kTagBits) - 1;
constexpr ucp_tag_t kSourceBits = ~kTag;
constexpr ucp_tag_t kGroupBits = kTag & ~((ucp_tag_t{1} << kGroupShift) - 1);

constexpr ucp_tag_t OfGroup(std::uint32_t group) { return static_cast<ucp_tag_t>(group) << kGroupShift; }
constexpr ucp_tag_t OfSource(Rank source) { return static_cast<ucp_tag_t>(source) << kTagBits; }

}  // namespace

void UcxTransport::Discard(std::uint32_t group) {
  if (worker_ == nullptr || shut_down_ || !discarded_.Add(group)) return;
  for (Operation& operation : operations_) {
    if (operation.completion == nullptr || !operation.receives || GroupOf(operation.tag) != group) continue;
    operation.discarded = true;
    ucp_.ucp_request_cancel(worker_->get(), operation.request);
  }
  ThrowAway(OfGroup(group), kGroupBits, kMessagesAtOnce);
}

void UcxTransport::Accept(std::uint32_t group) {
  discarded_.Remove(group);
  if (worker_ == nullptr || shut_down_) return;
  while (ThrowAway(OfGroup(group), kGroupBits, kMessagesAtOnce) == kMessagesAtOnce) {  // what has come takes memory
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
  // The groups that were discarded last are the likeliest, and are searched for each time.
  for (std::size_t i = 0; i < std::min(discarded_.size(), kSearchesAtOnce) && left > 0; ++i) {
    left -= ThrowAway(OfGroup(discarded_[discarded_.size() - 1 - i]), kGroupBits, left);
  }
  for (std::size_t i = 0; i < std::min(searches, kSearchesAtOnce) && left > 0; ++i) {
    swept_ = (swept_ + 1) % searches;
    left -= swept_ < discarded_.size()
                ? ThrowAway(OfGroup(discarded_[swept_]), kGroupBits, left)
                : ThrowAway(OfSource(losses[swept_ - discarded_.size()].peer), kSourceBits, left);
  }
}

int UcxTransport::ThrowAway(ucp_tag_t tag, ucp_tag_t mask, int most) {
  for (int thrown = 0; thrown < most; ++thrown) {
    ucp_tag_recv_info_t info;
    const ucp_tag_message_h message = ucp_.ucp_tag_probe_nb(worker_->get(), tag, mask, /*remove=*/1, &info);
    if (message == nullptr) return thrown;
    ucp_request_param_t param = {};
    param.op_attr_mask = UCP_OP_ATTR_FIELD_MEMORY_TYPE;
    param.memory_type = UCS_MEMORY_TYPE_HOST;
    Leave(ucp_.ucp_tag_msg_recv_nbx(worker_->get(), nullptr, 0, message, &param));
  }
  return most;
}

}  // namespace tutti::ucx
