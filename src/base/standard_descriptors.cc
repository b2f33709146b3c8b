#include "base/standard_descriptors.h"

#include <fcntl.h>
#include <unistd.h>

namespace tutti {

void HoldStandardDescriptors() {
  // open returns the lowest free number, so the loop fills gaps without looking for gaps first, which would race with
  // other threads.
  int fd = -1;
  do {
    fd = ::open("/dev/null", O_RDWR);
  } while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd >= 0) ::close(fd);
}

}  // namespace tutti
