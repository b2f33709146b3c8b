#include <ATen/ATen.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <numeric>
#include <utility>

#include "bindings/torch/process_group/process_group_tutti.h"
#include "bindings/torch/process_group/reduce_op.h"
#include "bindings/torch/process_group/tensors.h"

namespace tutti::dist {
namespace {

using ::c10d::OpType;

// While a QuietCopies lives, autograd and inference mode do not hear of the copies that a call makes.
using QuietCopies = at::AutoDispatchBelowADInplaceOrView;

DType TypeToReduce(const char* call, const at::Tensor& tensor) {
  const std::optional<DType> dtype = DTypeOf(tensor.scalar_type());
  TORCH_CHECK_TYPE(dtype.has_value(), "tutti: ", call, ": elements of type ", tensor.scalar_type(),
                   " cannot be reduced");
  return *dtype;
}

// How elements that are only moved are described: as bytes where the core has no such type.
struct Moved {
  explicit Moved(const at::Tensor& tensor)
      : dtype(DTypeOf(tensor.scalar_type()).value_or(DType::kU8)),
        per_element(static_cast<std::int64_t>(tensor.itemsize()) / SizeOf(dtype)) {}
  DType dtype;
  std::int64_t per_element;  // elements of `dtype` for each element of the tensor
};

// `input`, or a copy of it where its memory overlaps that of `output`.
at::Tensor Apart(const at::Tensor& input, const at::Tensor& output) {
  return Overlap(input, output) ? input.clone() : input;
}

void CheckCount(const char* call, const char* argument, const at::Tensor& tensor, std::int64_t count) {
  TORCH_CHECK_VALUE(tensor.numel() == count, "tutti: ", call, ": ", argument, " has ", tensor.numel(), " elements; ",
                    count, " would be right");
}

Calls::Prepared Prepare(const CollectiveSpec& spec, const at::Tensor& in, const at::Tensor& out,
                        const CallOptions& options) {
  // The output comes first: a tensor that torch copies when it is first written moves here, and may be the input, too.
  void* const out_memory = out.defined() ? out.mutable_data_ptr() : nullptr;
  return {.spec = spec,
          .in = in.defined() ? in.const_data_ptr() : nullptr,
          .out = out_memory,
          .options = options,
          .storages = {in.defined() ? in.storage() : c10::Storage(), out.defined() ? out.storage() : c10::Storage()}};
}

std::vector<std::int64_t> CountsOf(at::TensorList tensors) {
  std::vector<std::int64_t> counts;
  for (const at::Tensor& tensor : tensors) counts.push_back(tensor.numel());
  return counts;
}

bool AllEqual(const std::vector<std::int64_t>& counts) {
  return std::adjacent_find(counts.begin(), counts.end(), std::not_equal_to<>()) == counts.end();
}

// Lets the results that arrive in `room` go on to `outputs`, where these do not lie in `room`.
void DistributeAfter(Calls& calls, const at::Tensor& room, at::TensorList outputs) {
  if (room.is_alias_of(outputs[0])) return;
  std::vector<at::Tensor> aliases;
  for (const at::Tensor& output : outputs) {
    CheckOutput(output);
    aliases.push_back(AliasOf(output));
  }
  calls.held.push_back(room);
  calls.finish = [room, list = std::move(aliases), earlier = std::move(calls.finish)] {
    if (earlier) earlier();
    Distribute(room, list);
  };
}

// The elements of each rank in a tensor that is split along its first dimension; all alike where `splits` is empty.
std::vector<std::int64_t> ElementsOfRanks(const char* argument, const at::Tensor& tensor,
                                          const std::vector<std::int64_t>& splits, int size) {
  const std::int64_t rows = tensor.dim() == 0 ? 1 : tensor.size(0);
  if (splits.empty()) {
    TORCH_CHECK_VALUE(rows % size == 0, "tutti: all_to_all_single: the first dimension of ", argument, " is ", rows,
                      ", which the ", size, " ranks of the group do not divide; give split sizes");
    return std::vector<std::int64_t>(size, tensor.numel() / size);
  }
  TORCH_CHECK_VALUE(static_cast<int>(splits.size()) == size, "tutti: all_to_all_single: ", splits.size(),
                    " split sizes for ", argument, "; the group has ", size, " ranks");
  const std::int64_t sum = std::accumulate(splits.begin(), splits.end(), std::int64_t{0});
  TORCH_CHECK_VALUE(sum == rows, "tutti: all_to_all_single: the split sizes for ", argument, " sum to ", sum,
                    "; its first dimension is ", rows);
  const std::int64_t per_row = rows == 0 ? 0 : tensor.numel() / rows;
  std::vector<std::int64_t> elements;
  for (const std::int64_t split : splits) {
    TORCH_CHECK_VALUE(split >= 0, "tutti: all_to_all_single: split size ", split, " for ", argument);
    elements.push_back(split * per_row);
  }
  return elements;
}

}  // namespace

void ProcessGroupTutti::AddAllReduce(at::Tensor& tensor, const ::c10d::ReduceOp& op, const CallOptions& options,
                                     Calls& calls) {
  const at::Tensor room = Plain(tensor);
  CallOptions own = options;
  const CollectiveSpec spec = {.collective = Collective::kAllReduce,
                               .dtype = TypeToReduce("all_reduce", tensor),
                               .op = ReduceOpOf("all_reduce", op, own),
                               .count = tensor.numel()};
  calls.prepared.push_back(Prepare(spec, room, room, own));
  calls.outputs.push_back(tensor);
  DistributeAfter(calls, room, tensor);
}

void ProcessGroupTutti::AddAllGather(const at::Tensor& output, const at::Tensor& input, const CallOptions& options,
                                     Calls& calls) {
  const Moved moved(input);
  const std::int64_t count = input.numel() * moved.per_element;
  // All ranks call in place, because a call is in place on all ranks or on none, and an input may be a part of the
  // output on some ranks only.
  const at::Tensor block = output.view({-1}).narrow(0, getRank() * input.numel(), input.numel());
  if (input.const_data_ptr() != block.const_data_ptr()) CopyQuietly(Apart(input, output).view({-1}), block);
  calls.prepared.push_back(
      Prepare({.collective = Collective::kAllGather, .dtype = moved.dtype, .count = count}, block, output, options));
}

void ProcessGroupTutti::AddReduceScatter(const at::Tensor& output, const at::Tensor& input, const ::c10d::ReduceOp& op,
                                         const CallOptions& options, Calls& calls) {
  CallOptions own = options;
  const CollectiveSpec spec = {.collective = Collective::kReduceScatter,
                               .dtype = TypeToReduce("reduce_scatter", input),
                               .op = ReduceOpOf("reduce_scatter", op, own),
                               .count = output.numel()};
  // No rank calls in place, not even where the output is its block of the input: see AddAllGather.
  calls.held.push_back(Apart(input, output));
  calls.prepared.push_back(Prepare(spec, calls.held.back(), output, own));
}

void ProcessGroupTutti::AddAllToAllV(const at::Tensor& output, const std::vector<std::int64_t>& receive,
                                     const at::Tensor& input, const std::vector<std::int64_t>& send,
                                     const CallOptions& options, Calls& calls) {
  const Moved moved(input);
  // all_to_all_v serves this rank also where its own counts are all equal, or no splits are given: other ranks may have
  // others, and all ranks must make the same call.
  CollectiveSpec spec = {.collective = Collective::kAllToAllV, .dtype = moved.dtype};
  for (const std::int64_t count : send) spec.send_counts.push_back(count * moved.per_element);
  for (const std::int64_t count : receive) spec.recv_counts.push_back(count * moved.per_element);
  calls.held.push_back(Apart(input, output));
  calls.prepared.push_back(Prepare(spec, calls.held.back(), output, options));
}

ProcessGroupTutti::WorkPtr ProcessGroupTutti::broadcast(Tensors& tensors, const ::c10d::BroadcastOptions& options) {
  const QuietCopies quiet;
  const at::Tensor& tensor = OnlyTensor("broadcast", "tensor", tensors);
  CheckRank("broadcast", "src", options.rootRank);
  const at::Tensor room = Plain(tensor);
  const Moved moved(tensor);
  Calls calls = {.outputs = {tensor}};
  calls.prepared.push_back(Prepare({.collective = Collective::kBroadcast,
                                    .dtype = moved.dtype,
                                    .count = tensor.numel() * moved.per_element,
                                    .root = static_cast<Rank>(options.rootRank)},
                                   room, room, OptionsFor(options.timeout, options.asyncOp)));
  if (options.rootRank != getRank())
    DistributeAfter(calls, room, tensor);
  else
    calls.held.push_back(room);
  return Launched(std::move(calls), OpType::BROADCAST, "tutti:broadcast");
}

ProcessGroupTutti::WorkPtr ProcessGroupTutti::allreduce(Tensors& tensors, const ::c10d::AllreduceOptions& options) {
  if (tensors.size() == 1 && tensors[0].layout() == at::kSparse) return allreduce_sparse(tensors, options);
  const QuietCopies quiet;
  at::Tensor& tensor = OnlyTensor("all_reduce", "tensor", tensors);
  Calls calls;
  AddAllReduce(tensor, options.reduceOp, OptionsFor(options.timeout, options.asyncOp), calls);
  return Launched(std::move(calls), OpType::ALLREDUCE, "tutti:all_reduce");
}

ProcessGroupTutti::WorkPtr ProcessGroupTutti::allreduce_coalesced(Tensors& tensors,
                                                                  const ::c10d::AllreduceCoalescedOptions& options) {
  const QuietCopies quiet;
  TORCH_CHECK_VALUE(!tensors.empty(), "tutti: all_reduce_coalesced: no tensors");
  CheckTensors("all_reduce_coalesced", "tensors", tensors, tensors[0]);
  Calls calls;
  for (at::Tensor& tensor : tensors) {
    AddAllReduce(tensor, options.reduceOp, OptionsFor(options.timeout, options.asyncOp), calls);
  }
  return Launched(std::move(calls), OpType::ALLREDUCE_COALESCED, "tutti:all_reduce_coalesced");
}

ProcessGroupTutti::WorkPtr ProcessGroupTutti::reduce(Tensors& tensors, const ::c10d::ReduceOptions& options) {
  const QuietCopies quiet;
  const at::Tensor& tensor = OnlyTensor("reduce", "tensor", tensors);
  CheckRank("reduce", "dst", options.rootRank);
  const at::Tensor room = Plain(tensor);
  CallOptions own = OptionsFor(options.timeout, options.asyncOp);
  const CollectiveSpec spec = {.collective = Collective::kReduce,
                               .dtype = TypeToReduce("reduce", tensor),
                               .op = ReduceOpOf("reduce", options.reduceOp, own),
                               .count = tensor.numel(),
                               .root = static_cast<Rank>(options.rootRank)};
  const bool is_root = options.rootRank == getRank();
  Calls calls = {.outputs = {tensor}};
  calls.held.push_back(room);
  calls.prepared.push_back(Prepare(spec, room, is_root ? room : at::Tensor(), own));
  if (is_root) DistributeAfter(calls, room, tensor);
  return Launched(std::move(calls), OpType::REDUCE, "tutti:reduce");
}

ProcessGroupTutti::WorkPtr ProcessGroupTutti::allgather(TensorLists& outputs, Tensors& inputs,
                                                        const ::c10d::AllgatherOptions& options) {
  const QuietCopies quiet;
  const at::Tensor& input = OnlyTensor("all_gather", "tensor", inputs);
  TORCH_CHECK_VALUE(outputs.size() == 1 && static_cast<int>(outputs[0].size()) == getSize(),
                    "tutti: all_gather: tensor_list has ", outputs.empty() ? 0 : outputs[0].size(),
                    " tensors; the group has ", getSize(), " ranks");
  CheckTensors("all_gather", "tensor_list", outputs[0], input);
  CheckCount("all_gather", "tensor_list[this rank]", outputs[0][getRank()], input.numel());
  const std::vector<std::int64_t> counts = CountsOf(outputs[0]);
  const at::Tensor room = RoomForAll(outputs[0]);
  Calls calls = {.outputs = outputs[0]};
  const CallOptions own = OptionsFor(options.timeout, options.asyncOp);
  if (AllEqual(counts)) {
    AddAllGather(room, Plain(input), own, calls);
  } else {  // every rank has a block of its own size, which all ranks know: an exchange where each gets the same block
    const std::vector<at::Tensor> copies(getSize(), input);
    AddAllToAllV(room, counts, at::cat(std::vector<at::Tensor>(getSize(), input.reshape({-1}))), CountsOf(copies), own,
                 calls);
  }
  DistributeAfter(calls, room, outputs[0]);
  return Launched(std::move(calls), OpType::ALLGATHER, "tutti:all_gather");
}

ProcessGroupTutti::WorkPtr ProcessGroupTutti::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                              const ::c10d::AllgatherOptions& options) {
  Tensors outputs = {output};
  Tensors inputs = {input};
  return allgather_into_tensor_coalesced(outputs, inputs, options);
}

ProcessGroupTutti::WorkPtr ProcessGroupTutti::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                              const ::c10d::AllgatherOptions& options) {
  const QuietCopies quiet;
  TORCH_CHECK_VALUE(outputs.size() == inputs.size() && !inputs.empty(),
                    "tutti: all_gather_into_tensor: ", outputs.size(), " outputs for ", inputs.size(), " inputs");
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    CheckTensor("all_gather_into_tensor", "input_tensor", inputs[i]);
    CheckDevice("all_gather_into_tensor", "input_tensor", inputs[i], inputs[0]);
    CheckTensors("all_gather_into_tensor", "output_tensor", outputs[i], inputs[i]);
    CheckCount("all_gather_into_tensor", "output_tensor", outputs[i], inputs[i].numel() * getSize());
  }
  Calls calls = {.outputs = outputs};
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const at::Tensor room = PlainRoomFor(outputs[i]);
    AddAllGather(room, Plain(inputs[i]), OptionsFor(options.timeout, options.asyncOp), calls);
    DistributeAfter(calls, room, outputs[i]);
  }
  return Launched(std::move(calls), OpType::_ALLGATHER_BASE, "tutti:all_gather_into_tensor");
}

ProcessGroupTutti::WorkPtr ProcessGroupTutti::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                                                  const ::c10d::AllgatherOptions& options) {
  const QuietCopies quiet;
  TORCH_CHECK_VALUE(static_cast<int>(outputs.size()) == getSize() && !inputs.empty(),
                    "tutti: all_gather_coalesced: ", outputs.size(), " output lists; the group has ", getSize(),
                    " ranks");
  TensorLists gathered_from(inputs.size());  // by input: the tensor of each rank
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    CheckTensor("all_gather_coalesced", "input_tensor_list", inputs[i]);
    CheckDevice("all_gather_coalesced", "input_tensor_list", inputs[i], inputs[0]);
    Tensors& gathered = gathered_from[i];
    for (const Tensors& list : outputs) {
      TORCH_CHECK_VALUE(list.size() == inputs.size(), "tutti: all_gather_coalesced: an output list has ", list.size(),
                        " tensors for ", inputs.size(), " inputs");
      gathered.push_back(list[i]);
    }
    CheckTensors("all_gather_coalesced", "output_tensor_lists", gathered, inputs[i]);
    for (const at::Tensor& tensor : gathered) {
      CheckCount("all_gather_coalesced", "output_tensor_lists", tensor, inputs[i].numel());
    }
  }
  Calls calls;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Tensors& gathered = gathered_from[i];
    const at::Tensor room = RoomForAll(gathered);
    AddAllGather(room, Plain(inputs[i]), OptionsFor(options.timeout, options.asyncOp), calls);
    calls.outputs.insert(calls.outputs.end(), gathered.begin(), gathered.end());
    DistributeAfter(calls, room, gathered);
  }
  return Launched(std::move(calls), OpType::ALLGATHER_COALESCED, "tutti:all_gather_coalesced");
}

ProcessGroupTutti::WorkPtr ProcessGroupTutti::gather(TensorLists& outputs, Tensors& inputs,
                                                     const ::c10d::GatherOptions& options) {
  const QuietCopies quiet;
  const at::Tensor& input = OnlyTensor("gather", "tensor", inputs);
  CheckRank("gather", "dst", options.rootRank);
  const bool is_root = options.rootRank == getRank();
  if (is_root) {
    TORCH_CHECK_VALUE(outputs.size() == 1 && static_cast<int>(outputs[0].size()) == getSize(),
                      "tutti: gather: gather_list has ", outputs.empty() ? 0 : outputs[0].size(),
                      " tensors; the group has ", getSize(), " ranks");
    CheckTensors("gather", "gather_list", outputs[0], input);
    for (const at::Tensor& tensor : outputs[0]) CheckCount("gather", "gather_list", tensor, input.numel());
  } else {
    TORCH_CHECK_VALUE(outputs.empty() || outputs[0].empty(), "tutti: gather: gather_list is for rank ",
                      options.rootRank, " alone, where the tensors are gathered");
  }
  const Moved moved(input);
  const at::Tensor room = is_root ? RoomForAll(outputs[0]) : at::Tensor();
  Calls calls = {.outputs = is_root ? outputs[0] : Tensors()};
  const at::Tensor from = is_root ? Apart(Plain(input), room) : Plain(input);
  calls.held.push_back(from);
  calls.prepared.push_back(Prepare({.collective = Collective::kGather,
                                    .dtype = moved.dtype,
                                    .count = input.numel() * moved.per_element,
                                    .root = static_cast<Rank>(options.rootRank)},
                                   from, room, OptionsFor(options.timeout, options.asyncOp)));
  if (is_root) DistributeAfter(calls, room, outputs[0]);
  return Launched(std::move(calls), OpType::GATHER, "tutti:gather");
}

ProcessGroupTutti::WorkPtr ProcessGroupTutti::scatter(Tensors& outputs, TensorLists& inputs,
                                                      const ::c10d::ScatterOptions& options) {
  const QuietCopies quiet;
  const at::Tensor& output = OnlyTensor("scatter", "tensor", outputs);
  CheckRank("scatter", "src", options.rootRank);
  const bool is_root = options.rootRank == getRank();
  if (is_root) {
    TORCH_CHECK_VALUE(inputs.size() == 1 && static_cast<int>(inputs[0].size()) == getSize(),
                      "tutti: scatter: scatter_list has ", inputs.empty() ? 0 : inputs[0].size(),
                      " tensors; the group has ", getSize(), " ranks");
    CheckTensors("scatter", "scatter_list", inputs[0], output);
    for (const at::Tensor& tensor : inputs[0]) CheckCount("scatter", "scatter_list", tensor, output.numel());
  } else {
    TORCH_CHECK_VALUE(inputs.empty() || inputs[0].empty(), "tutti: scatter: scatter_list is for rank ",
                      options.rootRank, " alone, which has the tensors");
  }
  const Moved moved(output);
  const at::Tensor room = PlainRoomFor(output);
  Calls calls = {.outputs = {output}};
  const at::Tensor from = is_root ? Apart(Joined(inputs[0]), room) : at::Tensor();
  if (is_root) calls.held.push_back(from);
  calls.prepared.push_back(Prepare({.collective = Collective::kScatter,
                                    .dtype = moved.dtype,
                                    .count = output.numel() * moved.per_element,
                                    .root = static_cast<Rank>(options.rootRank)},
                                   from, room, OptionsFor(options.timeout, options.asyncOp)));
  DistributeAfter(calls, room, output);
  return Launched(std::move(calls), OpType::SCATTER, "tutti:scatter");
}

ProcessGroupTutti::WorkPtr ProcessGroupTutti::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                                             const ::c10d::ReduceScatterOptions& options) {
  const QuietCopies quiet;
  const at::Tensor& output = OnlyTensor("reduce_scatter", "output", outputs);
  TORCH_CHECK_VALUE(inputs.size() == 1 && static_cast<int>(inputs[0].size()) == getSize(),
                    "tutti: reduce_scatter: input_list has ", inputs.empty() ? 0 : inputs[0].size(),
                    " tensors; the group has ", getSize(), " ranks");
  CheckTensors("reduce_scatter", "input_list", inputs[0], output);
  CheckCount("reduce_scatter", "output", output, inputs[0][getRank()].numel());
  const CallOptions own = OptionsFor(options.timeout, options.asyncOp);
  const at::Tensor room = PlainRoomFor(output);
  Calls calls = {.outputs = {output}};
  if (AllEqual(CountsOf(inputs[0]))) {
    AddReduceScatter(room, Joined(inputs[0]), options.reduceOp, own, calls);
  } else {  // blocks of different sizes: one reduction for each rank
    for (Rank root = 0; root < getSize(); ++root) {
      CallOptions factored = own;
      const CollectiveSpec spec = {.collective = Collective::kReduce,
                                   .dtype = TypeToReduce("reduce_scatter", output),
                                   .op = ReduceOpOf("reduce_scatter", options.reduceOp, factored),
                                   .count = inputs[0][root].numel(),
                                   .root = root};
      calls.held.push_back(Plain(inputs[0][root]).clone());
      calls.prepared.push_back(Prepare(spec, calls.held.back(), root == getRank() ? room : at::Tensor(), factored));
    }
  }
  DistributeAfter(calls, room, output);
  return Launched(std::move(calls), OpType::REDUCE_SCATTER, "tutti:reduce_scatter");
}

ProcessGroupTutti::WorkPtr ProcessGroupTutti::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                                   const ::c10d::ReduceScatterOptions& options) {
  Tensors outputs = {output};
  Tensors inputs = {input};
  return reduce_scatter_tensor_coalesced(outputs, inputs, options);
}

ProcessGroupTutti::WorkPtr ProcessGroupTutti::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const ::c10d::ReduceScatterOptions& options) {
  const QuietCopies quiet;
  TORCH_CHECK_VALUE(outputs.size() == inputs.size() && !inputs.empty(),
                    "tutti: reduce_scatter_tensor: ", outputs.size(), " outputs for ", inputs.size(), " inputs");
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    CheckTensor("reduce_scatter_tensor", "output", outputs[i]);
    CheckDevice("reduce_scatter_tensor", "output", outputs[i], outputs[0]);
    CheckTensors("reduce_scatter_tensor", "input", inputs[i], outputs[i]);
    CheckCount("reduce_scatter_tensor", "input", inputs[i], outputs[i].numel() * getSize());
  }
  Calls calls = {.outputs = outputs};
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const at::Tensor room = PlainRoomFor(outputs[i]);
    AddReduceScatter(room, Plain(inputs[i]), options.reduceOp, OptionsFor(options.timeout, options.asyncOp), calls);
    DistributeAfter(calls, room, outputs[i]);
  }
  return Launched(std::move(calls), OpType::_REDUCE_SCATTER_BASE, "tutti:reduce_scatter_tensor");
}

ProcessGroupTutti::WorkPtr ProcessGroupTutti::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                            std::vector<std::int64_t>& output_splits,
                                                            std::vector<std::int64_t>& input_splits,
                                                            const ::c10d::AllToAllOptions& options) {
  const QuietCopies quiet;
  CheckTensor("all_to_all_single", "output", output);
  CheckTensors("all_to_all_single", "input", input, output);
  const std::vector<std::int64_t> receive = ElementsOfRanks("output", output, output_splits, getSize());
  const std::vector<std::int64_t> send = ElementsOfRanks("input", input, input_splits, getSize());
  const at::Tensor room = PlainRoomFor(output);
  Calls calls = {.outputs = {output}};
  AddAllToAllV(room, receive, Plain(input), send, OptionsFor(options.timeout, options.asyncOp), calls);
  DistributeAfter(calls, room, output);
  return Launched(std::move(calls), OpType::ALLTOALL_BASE, "tutti:all_to_all_single");
}

ProcessGroupTutti::WorkPtr ProcessGroupTutti::alltoall(Tensors& outputs, Tensors& inputs,
                                                       const ::c10d::AllToAllOptions& options) {
  const QuietCopies quiet;
  TORCH_CHECK_VALUE(static_cast<int>(outputs.size()) == getSize() && static_cast<int>(inputs.size()) == getSize(),
                    "tutti: all_to_all: ", outputs.size(), " output and ", inputs.size(),
                    " input tensors; the group has ", getSize(), " ranks");
  CheckTensor("all_to_all", "output_tensor_list", outputs[0]);
  CheckTensors("all_to_all", "output_tensor_list", outputs, outputs[0]);
  CheckTensors("all_to_all", "input_tensor_list", inputs, outputs[0]);
  const at::Tensor room = RoomForAll(outputs);
  Calls calls = {.outputs = outputs};
  AddAllToAllV(room, CountsOf(outputs), Joined(inputs), CountsOf(inputs), OptionsFor(options.timeout, options.asyncOp),
               calls);
  DistributeAfter(calls, room, outputs);
  return Launched(std::move(calls), OpType::ALLTOALL, "tutti:all_to_all");
}

ProcessGroupTutti::WorkPtr ProcessGroupTutti::barrier(const ::c10d::BarrierOptions& options) {
  Calls calls;
  calls.prepared.push_back(
      {.spec = {.collective = Collective::kBarrier}, .options = OptionsFor(options.timeout, options.asyncOp)});
  WorkPtr barrier = Launched(std::move(calls), OpType::BARRIER, "tutti:barrier");
  std::vector<WorkPtr> works = Unfinished();
  if (works.empty()) return barrier;
  works.push_back(std::move(barrier));
  return WorkOfAll(std::move(works));
}

}  // namespace tutti::dist
