// Tags on the wire, for messages of which an unexpected second copy may arrive. A tag may be used again as soon as its
// message has ended, so a late copy would meet the next receive of that tag. Therefore each use of a tag gets its own
// tag on the wire, of the same group, which both ends find by counting the uses.
#ifndef TUTTI_TRANSPORTS_FAULTY_TAGS_H_
#define TUTTI_TRANSPORTS_FAULTY_TAGS_H_

#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "tutti/transport.h"

namespace tutti::faulty {

// The uses of tags in one direction between two ranks. Remembers every tag, in some 20 bytes for each.
class TagUses {
 public:
  // The tag on the wire of the next use of `tag`: for the first use, `tag` itself; later uses are spread over the tags
  // of its group by steps of the golden section. So the wire tags of all uses of one tag differ. The wire tags of the
  // first N uses of two tags differ too where the two tags are less than 2²⁹ / (3 · N) apart.
  std::uint64_t Next(std::uint64_t tag) {
    const std::uint64_t use = uses_[tag]++;
    constexpr std::uint64_t kNumbers = (std::uint64_t{1} << kGroupShift) - 1;
    constexpr std::uint64_t kStep = 0x13C6EF37;  // 2²⁹ times the golden section
    return (tag & ~kNumbers) | ((tag + use * kStep) & kNumbers);
  }

 private:
  absl::flat_hash_map<std::uint64_t, std::uint64_t> uses_;
};

}  // namespace tutti::faulty

#endif  // TUTTI_TRANSPORTS_FAULTY_TAGS_H_
