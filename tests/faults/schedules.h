// Calls of one schedule whose results are known, for worlds with faults.
#ifndef TUTTI_TESTS_FAULTS_SCHEDULES_H_
#define TUTTI_TESTS_FAULTS_SCHEDULES_H_

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/faults/faulty_world.h"
#include "tests/harness/expected_results.h"
#include "tutti/schedule.h"

namespace tutti {

inline bool IsPointToPoint(const Schedule& schedule) {
  return schedule.collective == Collective::kSend || schedule.collective == Collective::kRecv;
}

// Whether the schedule sends messages: faults do not reach mapped memory.
inline bool SendsMessages(const Schedule& schedule) {
  return schedule.supports(SpecOf({.collective = schedule.collective}, 1, 0, 2), 2, {}).ok();
}

inline std::vector<const Schedule*> MessageSchedules() {
  std::vector<const Schedule*> schedules;
  for (const Schedule* schedule : AllSchedules()) {
    if (schedule->collective != Collective::kRecv && SendsMessages(*schedule)) schedules.push_back(schedule);
  }
  return schedules;
}

// Each rank sends to the next one in a circle.
inline Outcome PassOn(Communicator& comm, std::int64_t count) {
  const Rank next = (comm.rank() + 1) % comm.size();
  const Rank last = (comm.rank() + comm.size() - 1) % comm.size();
  std::vector<std::int32_t> out(count, comm.rank()), in(count, -1);
  Work sent = comm.Send(out.data(), count, DType::kI32, next);
  Work received = comm.Recv(in.data(), count, DType::kI32, last);
  if (absl::Status status = received.Wait(); !status.ok()) return {status, ""};
  for (const std::int32_t element : in) {
    if (element != last) return {absl::OkStatus(), absl::StrCat("received ", element, " instead of ", last)};
  }
  return {sent.Wait(), ""};
}

inline Outcome CallOnce(Communicator& comm, const Schedule& schedule, std::int64_t count) {
  if (IsPointToPoint(schedule)) return PassOn(comm, count);
  const Rank rank = comm.rank();
  const int size = comm.size();
  const CollectiveSpec spec =
      SpecOf({.collective = schedule.collective, .root = static_cast<Rank>(count % size)}, count, rank, size);
  std::vector<float> in(InputCount(spec, rank, size)), out(OutputCount(spec, rank, size));
  for (std::size_t i = 0; i < in.size(); ++i) {
    in[i] = static_cast<float>(InputElement(spec, rank, static_cast<std::int64_t>(i)).real());
  }
  if (absl::Status status = comm.Call(spec, in.data(), out.data(), {.schedule = &schedule}).Wait(); !status.ok()) {
    return {status, ""};
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto expected =
        static_cast<float>(OutputElement(spec, count, rank, size, static_cast<std::int64_t>(i)).real());
    if (out[i] == expected) continue;
    return {absl::OkStatus(), absl::StrCat(schedule.name, ": element ", i, " is ", out[i], ", expected ", expected)};
  }
  return {};
}

// Makes some calls, with messages of several sizes, up to the first call that does not end well.
inline Outcome CallSome(Communicator& comm, const Schedule& schedule) {
  for (const std::int64_t count : {1, 7, 4'000, 40'000}) {
    Outcome outcome = CallOnce(comm, schedule, count);
    if (!outcome.status.ok() || !outcome.wrong.empty()) return outcome;
  }
  return {};
}

}  // namespace tutti

#endif  // TUTTI_TESTS_FAULTS_SCHEDULES_H_
