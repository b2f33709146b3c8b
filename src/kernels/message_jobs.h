// Encoding and decoding of whole messages on a device. A job is one message; the jobs of a launch are cut into units,
// the blocks of their messages, each of which a team of threads works on.
#ifndef TUTTI_KERNELS_MESSAGE_JOBS_H_
#define TUTTI_KERNELS_MESSAGE_JOBS_H_

#include <cstdint>

#include "kernels/decode_fault.h"
#include "kernels/floating_element.h"
#include "kernels/message_layout.h"
#include "kernels/operand_list.h"
#include "kernels/single_coders.h"
#include "kernels/team.h"
#include "kernels/value_range.h"

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

  TUTTI_HOST_DEVICE void Divide(float (&octet)[kOctet]) const {
    if (!divides) return;
    TUTTI_UNROLL
    for (int i = 0; i < kOctet; ++i) octet[i] = quotients.Of(octet[i]);
  }
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

// The number of the first of the messages that has not the header of `layout`; `count` when all have it. The same for
// all threads, even while a peer changes a message.
template <class Team>
TUTTI_HOST_DEVICE int FirstWithoutHeader(const Team& team, const MessageLayout& layout,
                                         const std::uint8_t* const* messages, int count) {
  // What this thread has seen of a message's header; no &&, which would wait for each byte.
  const auto equals = [&](int m) {
    bool equal = true;
    for (int i = team.rank(); i < layout.header_bytes; i += team.size()) equal &= messages[m][i] == layout.header[i];
    return equal;
  };
  bool all_equal = true;
  TUTTI_UNROLL_BY_FOUR
  for (int m = 0; m < count; ++m) all_equal &= equals(m);
  if (team.All(all_equal)) return count;
  int first = 0;
  while (first < count - 1 && team.All(equals(first))) ++first;
  return first;
}

// `values` of an encoder plus, unless null, a residual.
template <class Values>
struct CorrectedValues {
  TUTTI_HOST_DEVICE void LoadOctet(std::int64_t begin, int n, float (&octet)[kOctet]) const {
    values.LoadOctet(begin, n, octet);
    Correct(begin, n, octet);
  }
  TUTTI_HOST_DEVICE void ReloadOctet(std::int64_t begin, int n, float (&octet)[kOctet]) const {
    values.ReloadOctet(begin, n, octet);
    Correct(begin, n, octet);
  }
  TUTTI_HOST_DEVICE void Correct(std::int64_t begin, int n, float (&octet)[kOctet]) const {
    if (residual == nullptr) return;
    float addend[kOctet];
    LoadElements(residual + begin, n, addend);
    TUTTI_UNROLL
    for (int i = 0; i < kOctet; ++i) octet[i] = octet[i] + addend[i];
  }

  Values values;
  const float* residual;
};

// Values of an encoder: the sum of a job's versions in block `unit`, which is stored when it is loaded.
template <class Coder>
struct SumOfVersions {
  TUTTI_HOST_DEVICE SumOfVersions(const RecodeJob& its_job, std::int64_t its_unit)
      : job(its_job), unit(its_unit), sum(job.sum + PlaceOf(job.encode.layout, unit, job.versions[0]).begin) {}

  TUTTI_HOST_DEVICE void LoadOctet(std::int64_t begin, int n, float (&octet)[kOctet]) const {
    TUTTI_UNROLL
    for (int i = 0; i < kOctet; ++i) octet[i] = -0.0f;  // which leaves what is added as it is
    // Loads of several versions are under way before the first of them is waited for.
    constexpr int kAtOnce = 4;
    TUTTI_KEEP_LOOP
    for (int first = 0; first < job.num_versions; first += kAtOnce) {
      const int count = job.num_versions - first;
      typename Coder::Numbers numbers[kAtOnce];
      typename Coder::Code codes[kAtOnce];
      TUTTI_UNROLL
      for (int v = 0; v < kAtOnce; ++v) {
        if (v >= count) continue;
        const auto place = PlaceOf(job.encode.layout, unit, job.versions[first + v]);
        Coder::LoadNumbers(place, numbers[v]);
        Coder::LoadCode(place.code, begin, n, codes[v]);
      }
      TUTTI_UNROLL
      for (int v = 0; v < kAtOnce; ++v) {
        if (v >= count) continue;
        float addend[kOctet];
        Coder::ValuesOf(Coder::LevelsOf(numbers[v]), codes[v], addend);
        TUTTI_UNROLL
        for (int i = 0; i < kOctet; ++i) octet[i] += addend[i];
      }
    }
    job.Divide(octet);
    StoreElements(octet, n, sum + begin);
  }
  TUTTI_HOST_DEVICE void ReloadOctet(std::int64_t begin, int n, float (&octet)[kOctet]) const {
    LoadElements(sum + begin, n, octet);
  }

  const RecodeJob& job;
  const std::int64_t unit;
  float* const sum;  // of the block
};

// Encodes the block at `place`. With a residual the corrected values take its place, until they are encoded.
template <class Coder, class Team>
TUTTI_HOST_DEVICE void EncodeInPasses(const Team& team, typename Coder::Scratch& scratch, const EncodeJob& job,
                                      const BlockPlace<std::uint8_t>& place, ValueSource values, float* residual) {
  const MessageLayout& layout = job.layout;
  if (residual != nullptr) {
    const CorrectedValues<ValueSource> corrected{values, residual};
    ForEachOctet(team, place.elements, [&](std::int64_t begin, int n) {
      float octet[kOctet];
      corrected.LoadOctet(begin, n, octet);
      StoreElements(octet, n, residual + begin);
    });
    team.Sync();
    values = ValueSource(residual);
  }
  Coder::Encode(team, scratch, layout, place, values, job.draw);
  team.Sync();
  if (residual == nullptr) return;
  Coder::Decode(team, scratch, layout, PlaceOf<const std::uint8_t>(layout, place.index, job.message),
                Output::kRemainder, ValueSink(residual));
  team.Sync();
}

// Encodes block `unit`, whose values are `values`. Those of a coder of more than one pass lie in memory.
template <class Coder, class Team, class Values>
TUTTI_HOST_DEVICE void EncodeUnit(const Team& team, typename Coder::Scratch& scratch, const EncodeJob& job,
                                  const Values& values, std::int64_t unit) {
  const MessageLayout& layout = job.layout;
  if (unit == 0) {
    for (int i = team.rank(); i < layout.header_bytes; i += team.size()) job.message[i] = layout.header[i];
  }
  if (layout.blocks == 0) return;
  const auto place = PlaceOf(layout, unit, job.message);
  float* const residual = job.residual == nullptr ? nullptr : job.residual + place.begin;
  if constexpr (Coder::kOnePass) {
    Coder::Encode(team, layout, place, CorrectedValues<Values>{values, residual}, job.draw, residual);
    team.Sync();
  } else {
    EncodeInPasses<Coder>(team, scratch, job, place, values, residual);
  }
}

// A job has `layout()`, by which its units are counted, and Run, which works on one unit; `number` is that of the job's
// first message in the launch, for the report of a fault.
struct RunEncode {
  TUTTI_HOST_DEVICE static const MessageLayout& LayoutOf(const EncodeJob& job) { return job.layout; }

  template <class Coder, class Team>
  TUTTI_HOST_DEVICE static void Run(const Team& team, typename Coder::Scratch& scratch, const EncodeJob& job,
                                    std::int64_t unit, int /*number*/, FaultReport /*report*/) {
    const ValueSource values(job.values, job.type);
    EncodeUnit<Coder>(team, scratch, job, values.From(unit * job.layout.block), unit);
  }
};

struct RunDecode {
  TUTTI_HOST_DEVICE static const MessageLayout& LayoutOf(const DecodeJob& job) { return job.layout; }

  template <class Coder, class Team>
  TUTTI_HOST_DEVICE static void Run(const Team& team, typename Coder::Scratch& scratch, const DecodeJob& job,
                                    std::int64_t unit, int number, FaultReport report) {
    const MessageLayout& layout = job.layout;
    if (FirstWithoutHeader(team, layout, &job.message, 1) == 0) return report.Raise(FaultKind::kHeader, number);
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
    const int v = FirstWithoutHeader(team, layout, job.versions, job.num_versions);
    if (v < job.num_versions) return report.Raise(FaultKind::kHeader, v);
    if constexpr (Coder::kOnePass) {
      EncodeUnit<Coder>(team, scratch, job.encode, SumOfVersions<Coder>(job, unit), unit);
    } else {
      if (layout.blocks > 0) {
        AddUp<Coder>(team, scratch, job, unit, report);
        team.Sync();
      }
      EncodeUnit<Coder>(team, scratch, job.encode, ValueSource(job.sum).From(unit * layout.block), unit);
    }
  }

 private:
  // Sets the sum, in memory.
  template <class Coder, class Team>
  TUTTI_HOST_DEVICE static void AddUp(const Team& team, typename Coder::Scratch& scratch, const RecodeJob& job,
                                      std::int64_t unit, FaultReport report) {
    const MessageLayout& layout = job.encode.layout;
    const auto first = PlaceOf(layout, unit, job.versions[0]);
    if constexpr (Coder::kAlone) {
      const SumOfVersions<Coder> sum(job, unit);
      ForEachOctet(team, first.elements, [&](std::int64_t begin, int n) {
        float octet[kOctet];
        sum.LoadOctet(begin, n, octet);
      });
    } else {
      float* const sum = job.sum + first.begin;
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
        job.Divide(octet);
        StoreElements(octet, n, sum + begin);
      });
    }
  }
};

// The jobs of one launch, whose messages have one coder.
template <class Job, int kMax>
struct Batch {
  static constexpr int kMaxJobs = kMax;
  Job jobs[kMax];
  std::int64_t ends[kMax];  // the units of the jobs up to each
  int num_jobs;
  int first_number;  // of the messages of the call that are in other launches before this one
  FaultReport report;
};

// Works on unit `unit` of the batch.
template <class Coder, class Runner, class Team, class Job, int kMax>
TUTTI_HOST_DEVICE void RunUnit(const Team& team, typename Coder::Scratch& scratch, const Batch<Job, kMax>& batch,
                               std::int64_t unit) {
  int job = 0;
  while (unit >= batch.ends[job]) ++job;
  const std::int64_t before = job == 0 ? 0 : batch.ends[job - 1];
  Runner::template Run<Coder>(team, scratch, batch.jobs[job], unit - before, batch.first_number + job, batch.report);
}

}  // namespace tutti::kernels

#endif  // TUTTI_KERNELS_MESSAGE_JOBS_H_
