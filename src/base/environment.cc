#include "base/environment.h"

#include <unistd.h>

#include <cstring>

namespace tutti {

Environment ProcessEnvironment() {
  Environment result;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    if (const char* equals = std::strchr(*entry, '=')) {
      result.emplace(std::string(*entry, static_cast<std::size_t>(equals - *entry)), equals + 1);
    };
  }
  return result;
}

}  // namespace tutti
