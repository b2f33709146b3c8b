// A user's first program: lists what the installed library can do.
#include <cstdio>

#include "tutti/schedule.h"

int main() {
  for (const tutti::Schedule* schedule : tutti::AllSchedules()) {
    std::printf("%.*s: %.*s\n", static_cast<int>(schedule->name.size()), schedule->name.data(),
                static_cast<int>(schedule->summary.size()), schedule->summary.data());
  }
  return tutti::AllSchedules().empty() ? 1 : 0;
}
