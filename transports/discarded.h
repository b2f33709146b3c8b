// The groups whose receives a transport has given up (Transport::Discard).
#ifndef TUTTI_TRANSPORTS_DISCARDED_H_
#define TUTTI_TRANSPORTS_DISCARDED_H_

#include <cstddef>
#include <cstdint>
#include <deque>

#include "absl/container/flat_hash_set.h"
#include "tutti/transport.h"

namespace tutti {

class DiscardedGroups {
 public:
  // Adds a group as the youngest; false when the group was there already. Beyond kMaxDiscarded the oldest group is
  // forgotten.
  bool Add(std::uint32_t group) {
    const bool is_new = groups_.insert(group).second;
    if (!is_new) std::erase(order_, group);
    order_.push_back(group);
    if (order_.size() > Transport::kMaxDiscarded) {
      groups_.erase(order_.front());
      order_.pop_front();
    }
    return is_new;
  }
  void Remove(std::uint32_t group) {
    if (groups_.erase(group) > 0) std::erase(order_, group);
  }
  bool Contains(std::uint32_t group) const { return groups_.contains(group); }
  std::size_t size() const { return order_.size(); }
  // The groups in the order in which they were added, the oldest first.
  std::uint32_t operator[](std::size_t index) const { return order_[index]; }

 private:
  absl::flat_hash_set<std::uint32_t> groups_;
  std::deque<std::uint32_t> order_;
};

}  // namespace tutti

#endif  // TUTTI_TRANSPORTS_DISCARDED_H_
