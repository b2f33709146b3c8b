// Queues by key, such as the receives and the messages of each tag: the entry of a key that came first leaves first.
#ifndef TUTTI_TRANSPORTS_KEYED_QUEUES_H_
#define TUTTI_TRANSPORTS_KEYED_QUEUES_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace tutti {

// A key takes no memory once its queue is empty, and in the long run nothing allocates. Not thread-safe.
template <typename Key, typename T>
class KeyedQueues {
 public:
  // Queues that allocate nothing while they have at most `room` entries together.
  explicit KeyedQueues(std::size_t room) {
    queues_.reserve(room);
    free_.reserve(room);
    for (std::size_t i = 0; i < room; ++i) free_.push_back(&entries_.emplace_back());
  }

  struct Entry {
    T value{};
    std::uint64_t number = 0;  // place among all that were added: an older entry has a smaller number
    Entry* next = nullptr;
  };

  void Add(const Key& key, T value) {
    if (free_.empty()) free_.push_back(&entries_.emplace_back());
    Entry* const entry = free_.back();
    free_.pop_back();
    *entry = {std::move(value), added_++, nullptr};
    Queue& queue = queues_[key];
    (queue.first == nullptr ? queue.first : queue.last->next) = entry;
    queue.last = entry;
  }

  // The oldest entry of `key`, valid until it is taken out; nullptr: there is none.
  const Entry* Oldest(const Key& key) const {
    const auto found = queues_.find(key);
    return found == queues_.end() ? nullptr : found->second.first;
  }

  // Takes the oldest entry of `key` out, which must exist.
  T Take(const Key& key) {
    const auto found = queues_.find(key);
    T value = TakeFirst(found->second);
    if (found->second.first == nullptr) queues_.erase(found);
    return value;
  }

  // Takes out all entries for which `takes(key, value)` holds, the oldest of a key first.
  template <typename Takes>
  void TakeIf(const Takes& takes) {
    absl::erase_if(queues_, [&](auto& keyed) {
      auto& [key, queue] = keyed;
      Queue kept;
      while (queue.first != nullptr) {
        Entry* const entry = queue.first;
        if (takes(key, entry->value)) {
          TakeFirst(queue);
          continue;
        }
        queue.first = std::exchange(entry->next, nullptr);
        (kept.first == nullptr ? kept.first : kept.last->next) = entry;
        kept.last = entry;
      }
      queue = kept;
      return queue.first == nullptr;
    });
  }

  // Takes entries out of the front of each queue, while `takes(key, value)` holds.
  template <typename Takes>
  void TakeWhile(const Takes& takes) {
    absl::erase_if(queues_, [&](auto& keyed) {
      auto& [key, queue] = keyed;
      while (queue.first != nullptr && takes(key, queue.first->value)) TakeFirst(queue);
      return queue.first == nullptr;
    });
  }

  bool empty() const { return queues_.empty(); }

 private:
  struct Queue {
    Entry* first = nullptr;
    Entry* last = nullptr;
  };

  T TakeFirst(Queue& queue) {
    Entry* const entry = queue.first;
    queue.first = entry->next;
    free_.push_back(entry);
    return std::move(entry->value);
  }

  absl::flat_hash_map<Key, Queue> queues_;
  std::deque<Entry> entries_;
  std::vector<Entry*> free_;
  std::uint64_t added_ = 0;
};

}  // namespace tutti

#endif  // TUTTI_TRANSPORTS_KEYED_QUEUES_H_
