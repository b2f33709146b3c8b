// The name of this machine.
#ifndef TUTTI_BASE_HOST_NAME_H_
#define TUTTI_BASE_HOST_NAME_H_

#include <unistd.h>

#include <climits>
#include <string>

namespace tutti {

inline std::string HostName() {
  char name[HOST_NAME_MAX + 1] = "";
  ::gethostname(name, sizeof(name) - 1);
  return name;
}

}  // namespace tutti

#endif  // TUTTI_BASE_HOST_NAME_H_
