// Tags on the wire, for messages of which a second copy may arrive that nobody asked for. A tag may be used again as
// soon as its message has ended, so a late copy would meet the next receive of that tag. Therefore each use of a tag
// gets its own tag on the wire, which both ends find by counting the uses.
#ifndef TUTTI_TRANSPORTS_FAULTY_TAGS_H_
#define TUTTI_TRANSPORTS_FAULTY_TAGS_H_

#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "tutti/transport.h"

namespace tutti::faulty {

// The uses of tags in one direction between two ranks. Remembers every tag, in some 20 bytes each.
class TagUses {
 public:
  // The tag on the wire of the next use of `tag`: for the first use, `tag` itself; later ones are spread over all tags,
  // where two are equal with a probability of 2⁻⁴⁸.
  std::uint64_t Next(std::uint64_t tag) {
    const std::uint64_t use = uses_[tag]++;
    if (use == 0) return tag;
    std::uint64_t mixed = (tag + use * 0x9E3779B97F4A7C15u) * 0xBF58476D1CE4E5B9u;
    mixed = (mixed ^ (mixed >> 29)) * 0x94D049BB133111EBu;
    return mixed >> (64 - kTagBits);
  }

 private:
  absl::flat_hash_map<std::uint64_t, std::uint64_t> uses_;
};

}  // namespace tutti::faulty

#endif  // TUTTI_TRANSPORTS_FAULTY_TAGS_H_
