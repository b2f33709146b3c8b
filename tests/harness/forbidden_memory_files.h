// A sandbox that forbids memory files.
#ifndef TUTTI_TESTS_HARNESS_FORBIDDEN_MEMORY_FILES_H_
#define TUTTI_TESTS_HARNESS_FORBIDDEN_MEMORY_FILES_H_

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstddef>
#include <iterator>

namespace tutti {

// Lets memfd_create fail with EPERM from now on, in this process and in those that it starts; false where the system
// has no such filters.
inline bool ForbidMemoryFiles() {
  sock_filter rules[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                         BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_memfd_create, 0, 1),
                         BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                         BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program = {static_cast<unsigned short>(std::size(rules)), rules};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

}  // namespace tutti

#endif  // TUTTI_TESTS_HARNESS_FORBIDDEN_MEMORY_FILES_H_
