// The notes of peers that nobody has taken yet (Transport::TakeNote).
#ifndef TUTTI_TRANSPORTS_NOTES_H_
#define TUTTI_TRANSPORTS_NOTES_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <utility>

#include "tutti/transport.h"

namespace tutti {

class Notes {
 public:
  // Adds a note. Beyond kMaxNotes the oldest note is forgotten.
  void Add(Note note) {
    if (notes_.size() == Transport::kMaxNotes) notes_.pop_front();
    notes_.push_back(std::move(note));
    ++come_;
  }
  std::optional<Note> Take() {
    if (notes_.empty()) return std::nullopt;
    std::optional<Note> note = std::move(notes_.front());
    notes_.pop_front();
    return note;
  }
  // The number of notes that have ever been added: Sleep ends when the number has grown.
  std::uint64_t come() const { return come_; }

 private:
  std::deque<Note> notes_;
  std::uint64_t come_ = 0;
};

}  // namespace tutti

#endif  // TUTTI_TRANSPORTS_NOTES_H_
