// A limit of file descriptors, for as long as the object lives.
#ifndef TUTTI_TESTS_HARNESS_DESCRIPTOR_LIMIT_H_
#define TUTTI_TESTS_HARNESS_DESCRIPTOR_LIMIT_H_

#include <sys/resource.h>
#include <unistd.h>

#include <cstddef>

#include "gtest/gtest.h"

namespace tutti {

class DescriptorLimit {
 public:
  // Lets this process open `more` descriptors: with numbers from the lowest one that is free on.
  explicit DescriptorLimit(std::size_t more) {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &usual_), 0);
    const int next = ::dup(STDERR_FILENO);
    ::close(next);
    const rlimit few = {static_cast<rlim_t>(next) + more, usual_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  }
  ~DescriptorLimit() { EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &usual_), 0); }
  DescriptorLimit(const DescriptorLimit&) = delete;
  DescriptorLimit& operator=(const DescriptorLimit&) = delete;

 private:
  rlimit usual_ = {};
};

}  // namespace tutti

#endif  // TUTTI_TESTS_HARNESS_DESCRIPTOR_LIMIT_H_
