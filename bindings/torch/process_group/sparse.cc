#include <ATen/ATen.h>
#include <ATen/OpMathType.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include "bindings/torch/process_group/process_group_tutti.h"
#include "bindings/torch/process_group/tensors.h"

namespace tutti::dist {
namespace {

// The number of elements of a sparse tensor, then its type and shape, which ranks must have alike.
std::vector<std::int64_t> ShapeOf(const at::Tensor& sparse) {
  std::vector<std::int64_t> shape = {sparse._nnz(), sparse.sparse_dim(), sparse.dense_dim(),
                                     static_cast<std::int64_t>(sparse.scalar_type())};
  shape.insert(shape.end(), sparse.sizes().begin(), sparse.sizes().end());
  return shape;
}

std::vector<at::Tensor> RoomForShapes(const at::Tensor& shape, int size) {
  std::vector<at::Tensor> shapes;
  shapes.reserve(size);
  for (int rank = 0; rank < size; ++rank) shapes.push_back(at::empty_like(shape));
  return shapes;
}

}  // namespace

// The sum of sparse tensors: every rank gets the indices and values of all ranks, and adds up what has equal indices.
// The ranks first tell each other how many elements they have, so the calling thread waits.
ProcessGroupTutti::WorkPtr ProcessGroupTutti::allreduce_sparse(Tensors& tensors,
                                                               const ::c10d::AllreduceOptions& options) {
  TORCH_CHECK_VALUE(tensors.size() == 1, "tutti: all_reduce: ", tensors.size(), " sparse tensors; one is supported");
  TORCH_CHECK_VALUE(options.reduceOp == ::c10d::ReduceOp::SUM,
                    "tutti: all_reduce: sparse tensors can be reduced by SUM");
  TORCH_CHECK_VALUE(tensors[0].layout() == at::kSparse && tensors[0].device().is_cpu(), "tutti: all_reduce: a ",
                    tensors[0].layout(), " tensor on ", tensors[0].device(),
                    "; sparse COO tensors on the CPU are supported");
  const at::AutoDispatchBelowADInplaceOrView quiet;
  const at::Tensor mine = tensors[0].coalesce();
  const ::c10d::AllgatherOptions gathering = {.timeout = options.timeout, .asyncOp = false};

  const at::Tensor shape = at::tensor(ShapeOf(mine), at::kLong);
  TensorLists shapes = {RoomForShapes(shape, getSize())};
  Tensors input = {shape};
  allgather(shapes, input, gathering)->wait();
  Tensors indices;
  Tensors values;
  for (Rank rank = 0; rank < getSize(); ++rank) {
    const at::Tensor& theirs = shapes[0][rank];
    TORCH_CHECK_VALUE(theirs.slice(0, 1).equal(shape.slice(0, 1)), "tutti: all_reduce: the sparse tensor of rank ",
                      rank, " has another type, shape or number of sparse dimensions than that of rank ", getRank());
    const std::int64_t count = theirs[0].item<std::int64_t>();
    // Transposed, so that the indices of one element lie together.
    indices.push_back(at::empty({count, mine.sparse_dim()}, at::kLong));
    std::vector<std::int64_t> sizes = mine.values().sizes().vec();
    sizes[0] = count;
    values.push_back(at::empty(sizes, mine.values().options()));
  }
  TensorLists all_indices = {indices};
  Tensors my_indices = {mine.indices().t().contiguous()};
  allgather(all_indices, my_indices, gathering)->wait();
  TensorLists all_values = {values};
  Tensors my_values = {mine.values().contiguous()};
  allgather(all_values, my_values, gathering)->wait();

  // The sums of 16-bit values are rounded once, as those of dense tensors are.
  const at::ScalarType type = mine.scalar_type();
  const at::ScalarType wide = at::toOpMathType(type);
  const at::Tensor sum = at::sparse_coo_tensor(at::cat(indices, 0).t().contiguous(), at::cat(values, 0).to(wide),
                                               mine.sizes(), mine.options().dtype(wide))
                             .coalesce();
  tensors[0].copy_(sum.to(type));
  return Launched({.outputs = tensors}, ::c10d::OpType::_ALLREDUCE_SPARSE, "tutti:all_reduce_sparse");
}

}  // namespace tutti::dist
