// A program of a project that Tutti is a part of: tells whether all parts that the project has added are right.
#include <cstdio>

#include "tutti/extension.h"

int main() {
  std::puts(tutti::ExtensionNames().c_str());
  return tutti::ExtensionStatus().ok() ? 0 : 1;
}
