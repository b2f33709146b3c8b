// Encoding and decoding of whole messages on a device. A job is one message; the jobs of a launch are cut into units,
// the blocks of their messages, each of which a team of threads works on.
#ifndef TUTTI_KERNELS_MESSAGE_JOBS_H_
#define TUTTI_KERNELS_MESSAGE_JOBS_H_

#include <cstdint>

#include "kernels/decode_fault.h"
#include "kernels/floating_element.h"
#include "kernels/message_layout.h"
#include "kernels/operand_list.h"
#include "kernels/team.h"

namespace tutti::kernels {

// message ← Q(values), Q being the codec. With a residual: message ← Q(values + residual), and residual ← what that
// loses. `draw` names the random numbers of the message.
struct EncodeJob {
  MessageLayout layout;
  const void* values;
  DType type;  // of the values: f32, f16 or bf16
  std::uint8_t* message;
  std::uint64_t draw;
  float* residual;  // or null
};

// values ← what the message decodes to, or values += it.
struct DecodeJob {
  MessageLayout layout;
  const std::uint8_t* message;
  void* values;
  DType type;  // of the values: f32, f16 or bf16
  bool accumulate;
};

// The middle of the two-shot exchange, of one chunk: sum ← (what all versions decode to, added up in their order) /
// divisor, then message ← Q(sum), with a residual as in EncodeJob.
struct RecodeJob {
  EncodeJob encode;  // its values are those of `sum`
  float* sum;
  const std::uint8_t* versions[kMaxOperands];
  int num_versions;
  bool divides;
  Quotients<float> quotients;
};

// The threads' access to the word for faults; null: nobody wants to know.
struct FaultReport {
  TUTTI_HOST_DEVICE void Raise(FaultKind kind, int message) const {
    if (word != nullptr) *word = DecodeFaultWord(kind, message);
  }
  std::uint32_t* word;
};

// Units of a message: its blocks. A message without blocks has one unit, for its header.
TUTTI_HOST_DEVICE inline std::int64_t UnitsOf(const MessageLayout& layout) {
  return layout.blocks > 0 ? layout.blocks : 1;
}

template <class Team>
TUTTI_HOST_DEVICE bool HasHeader(const Team& team, const MessageLayout& layout, const std::uint8_t* message) {
  bool equal = true;
  for (int i = team.rank(); i < layout.header_bytes; i += team.size()) {
    equal = equal && message[i] == layout.header[i];
  }
  return team.All(equal);  // the same for all threads, even while a peer changes the message
}

// Encodes block `unit` of `values`, which begin with element 0 of the message.
template <class Coder, class Team>
TUTTI_HOST_DEVICE void EncodeUnit(const Team& team, typename Coder::Scratch& scratch, const EncodeJob& job,
                                  ValueSource values, std::int64_t unit) {
  const MessageLayout& layout = job.layout;
  if (unit == 0) {
    for (int i = team.rank(); i < layout.header_bytes; i += team.size()) job.message[i] = layout.header[i];
  }
  if (layout.blocks == 0) return;
  const auto place = PlaceOf(layout, unit, job.message);
  values = values.From(place.begin);
  float* const residual = job.residual == nullptr ? nullptr : job.residual + place.begin;
  if (residual != nullptr) {
    ForEachOctet(team, place.elements, [&](std::int64_t begin, int n) {
      float octet[kOctet];
      LoadElements(residual + begin, n, octet);
      float gradient[kOctet];
      values.LoadOctet(begin, n, gradient);
      TUTTI_UNROLL
      for (int i = 0; i < kOctet; ++i) octet[i] = gradient[i] + octet[i];
      StoreElements(octet, n, residual + begin);
    });
    team.Sync();
    values = ValueSource(residual);
  }
  Coder::Encode(team, scratch, layout, place, values, job.draw);
  team.Sync();
  if (residual == nullptr) return;
  Coder::Decode(team, scratch, layout, PlaceOf<const std::uint8_t>(layout, unit, job.message), Output::kRemainder,
                ValueSink(residual));
  team.Sync();
}

// A job has `layout()`, by which its units are counted, and Run, which works on one unit; `number` is that of the job's
// first message in the launch, for the report of a fault.
struct RunEncode {
  TUTTI_HOST_DEVICE static const MessageLayout& LayoutOf(const EncodeJob& job) { return job.layout; }

  template <class Coder, class Team>
  TUTTI_HOST_DEVICE static void Run(const Team& team, typename Coder::Scratch& scratch, const EncodeJob& job,
                                    std::int64_t unit, int /*number*/, FaultReport /*report*/) {
    EncodeUnit<Coder>(team, scratch, job, ValueSource(job.values, job.type), unit);
  }
};

struct RunDecode {
  TUTTI_HOST_DEVICE static const MessageLayout& LayoutOf(const DecodeJob& job) { return job.layout; }

  template <class Coder, class Team>
  TUTTI_HOST_DEVICE static void Run(const Team& team, typename Coder::Scratch& scratch, const DecodeJob& job,
                                    std::int64_t unit, int number, FaultReport report) {
    const MessageLayout& layout = job.layout;
    if (!HasHeader(team, layout, job.message)) return report.Raise(FaultKind::kHeader, number);
    if (layout.blocks == 0) return;
    const auto place = PlaceOf(layout, unit, job.message);
    const Output output = job.accumulate ? Output::kAdd : Output::kSet;
    if (!Coder::Decode(team, scratch, layout, place, output, ValueSink(job.values, job.type).From(place.begin))) {
      report.Raise(FaultKind::kCode, number);
    }
    team.Sync();
  }
};

struct RunRecode {
  TUTTI_HOST_DEVICE static const MessageLayout& LayoutOf(const RecodeJob& job) { return job.encode.layout; }

  template <class Coder, class Team>
  TUTTI_HOST_DEVICE static void Run(const Team& team, typename Coder::Scratch& scratch, const RecodeJob& job,
                                    std::int64_t unit, int /*number*/, FaultReport report) {
    const MessageLayout& layout = job.encode.layout;
    for (int v = 0; v < job.num_versions; ++v) {
      if (!HasHeader(team, layout, job.versions[v])) return report.Raise(FaultKind::kHeader, v);
    }
    if (layout.blocks > 0) {
      AddUp<Coder>(team, scratch, job, unit, report);
      team.Sync();
    }
    EncodeUnit<Coder>(team, scratch, job.encode, ValueSource(job.sum), unit);
  }

 private:
  template <class Coder, class Team>
  TUTTI_HOST_DEVICE static void AddUp(const Team& team, typename Coder::Scratch& scratch, const RecodeJob& job,
                                      std::int64_t unit, FaultReport report) {
    const MessageLayout& layout = job.encode.layout;
    const auto first = PlaceOf(layout, unit, job.versions[0]);
    float* const sum = job.sum + first.begin;
    if constexpr (Coder::kAlone) {
      ForEachOctet(team, first.elements, [&](std::int64_t begin, int n) {
        float octet[kOctet];
        Coder::DecodeOctet(Coder::LevelsOf(first), first.code, begin, n, octet);
        for (int v = 1; v < job.num_versions; ++v) {
          const auto place = PlaceOf(layout, unit, job.versions[v]);
          float addend[kOctet];
          Coder::DecodeOctet(Coder::LevelsOf(place), place.code, begin, n, addend);
          TUTTI_UNROLL
          for (int i = 0; i < kOctet; ++i) octet[i] += addend[i];
        }
        Divide(job, octet);
        StoreElements(octet, n, sum + begin);
      });
    } else {
      for (int v = 0; v < job.num_versions; ++v) {
        const auto place = PlaceOf(layout, unit, job.versions[v]);
        if (!Coder::Decode(team, scratch, layout, place, v == 0 ? Output::kSet : Output::kAdd, ValueSink(sum))) {
          report.Raise(FaultKind::kCode, v);
        }
        team.Sync();
      }
      ForEachOctet(team, first.elements, [&](std::int64_t begin, int n) {
        float octet[kOctet];
        LoadElements(sum + begin, n, octet);
        Divide(job, octet);
        StoreElements(octet, n, sum + begin);
      });
    }
  }

  TUTTI_HOST_DEVICE static void Divide(const RecodeJob& job, float (&octet)[kOctet]) {
    if (!job.divides) return;
    TUTTI_UNROLL
    for (int i = 0; i < kOctet; ++i) octet[i] = job.quotients.Of(octet[i]);
  }
};

// The jobs of one launch, whose messages have one coder.
template <class Job, int kMost>
struct Batch {
  static constexpr int kMostJobs = kMost;
  Job jobs[kMost];
  std::int64_t ends[kMost];  // the units of the jobs up to each
  int num_jobs;
  int first_number;  // of the messages of the call that are in other launches before this one
  FaultReport report;
};

// Works on unit `unit` of the batch.
template <class Coder, class Runner, class Team, class Job, int kMost>
TUTTI_HOST_DEVICE void RunUnit(const Team& team, typename Coder::Scratch& scratch, const Batch<Job, kMost>& batch,
                               std::int64_t unit) {
  int job = 0;
  while (unit >= batch.ends[job]) ++job;
  const std::int64_t before = job == 0 ? 0 : batch.ends[job - 1];
  Runner::template Run<Coder>(team, scratch, batch.jobs[job], unit - before, batch.first_number + job, batch.report);
}

}  // namespace tutti::kernels

#endif  // TUTTI_KERNELS_MESSAGE_JOBS_H_
