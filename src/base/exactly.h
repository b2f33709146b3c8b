// Numbers as texts that lose nothing.
#ifndef TUTTI_BASE_EXACTLY_H_
#define TUTTI_BASE_EXACTLY_H_

#include <charconv>
#include <string>

namespace tutti {

// The shortest text that reads back as exactly `value`.
inline std::string Exactly(double value) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof(text), value).ptr};
}

}  // namespace tutti

#endif  // TUTTI_BASE_EXACTLY_H_
