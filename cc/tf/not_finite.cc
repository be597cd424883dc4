// TfhvdFindNotFinite and TfhvdNoteNotFinite: whether this rank's gradients of a step are finite,
// and what becomes of it. See cc/flow/finite_vote.h.
//
// Each of the former looks at the gradients of one bucket, when these are there, and adds to what
// those before it have found. It hands the gradients on, so that nobody else still reads them when
// they are reduced: that happens in place.
#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cc/flow/finite_vote.h"
#include "cc/process/process.h"
#include "cc/tf/attributes.h"
#include "cc/tf/status.h"
#include "cc/tf/types.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tfhvd {
namespace {

using tensorflow::Tensor;

REGISTER_OP("TfhvdFindNotFinite")
    .Input("before: int64")
    .Input("tensors: T")
    .Output("found: int64")
    .Output("votes: float")
    .Output("same: T")
    .Attr("T: list(" TFHVD_OP_TYPES ") >= 1")
    .Attr("most: int = 0")
    .Attr("numbers: list(int)")
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* c) {
      c->set_output(0, c->Vector(kFoundValues));
      c->set_output(1, c->Vector(kVoteValues));
      for (int i = 1; i < c->num_inputs(); ++i) c->set_output(i + 1, c->input(i));
      return absl::OkStatus();
    })
    .Doc("Adds which of the tensors are not finite, by their numbers, to what was found before.");

REGISTER_OP("TfhvdNoteNotFinite")
    .Input("found: int64")
    .Input("votes: float")
    .Attr("reductions: string")
    .Attr("labels: list(string) = []")
    .Attr("left_out: bool = false")
    .Attr("process_set_id: int = 0")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs)
    .Doc("Takes note of what the ranks' votes together say of a step.");

absl::Status CheckLength(const Tensor& tensor, int expected) {
  if (tensor.NumElements() == expected) return absl::OkStatus();
  return absl::InvalidArgumentError("Received: " + tensor.DebugString() +
                                    ". Expected: " + std::to_string(expected) + " values.");
}

class FindNotFiniteKernel : public tensorflow::OpKernel {
 public:
  explicit FindNotFiniteKernel(tensorflow::OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("numbers", &numbers_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("most", &most_));
    OP_REQUIRES(ctx, static_cast<int>(numbers_.size()) == ctx->num_inputs() - 1,
                absl::InvalidArgumentError("Each tensor needs its number."));
  }

  void Compute(tensorflow::OpKernelContext* ctx) override {
    OP_REQUIRES_OK(ctx, CheckLength(ctx->input(0), kFoundValues));
    FoundNotFinite found = ToFound(ctx->input(0).flat<int64_t>().data());
    for (int i = 1; i < ctx->num_inputs(); ++i) {
      const Tensor& tensor = ctx->input(i);
      ctx->set_output(i + 1, tensor);
      DType dtype;
      if (!ToDType(tensor.dtype(), &dtype)) continue;
      Look(tensor.data(), dtype, tensor.NumElements(), most_, numbers_[static_cast<size_t>(i - 1)],
           &found);
    }
    const std::shared_ptr<Engine> engine = ProcessEngine();
    const int rank = engine == nullptr ? 0 : engine->topology().rank;
    const Votes votes = VoteOf(found, rank);
    Tensor* output = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, {kFoundValues}, &output));
    ToValues(found, output->flat<int64_t>().data());
    OP_REQUIRES_OK(ctx, ctx->allocate_output(1, {kVoteValues}, &output));
    std::copy(votes.begin(), votes.end(), output->flat<float>().data());
  }

 private:
  std::vector<int64_t> numbers_;
  int64_t most_ = 0;
};

class NoteNotFiniteKernel : public tensorflow::OpKernel {
 public:
  explicit NoteNotFiniteKernel(tensorflow::OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ReadGradients(ctx, &gradients_));
  }

  void Compute(tensorflow::OpKernelContext* ctx) override {
    OP_REQUIRES_OK(ctx, CheckLength(ctx->input(0), kFoundValues));
    OP_REQUIRES_OK(ctx, CheckLength(ctx->input(1), kVoteValues));
    const std::shared_ptr<Engine> engine = ProcessEngine();
    if (engine == nullptr) return;  // shut down meanwhile
    Votes together;
    std::copy_n(ctx->input(1).flat<float>().data(), kVoteValues, together.begin());
    OP_REQUIRES_OK(ctx, ToAbsl(engine->NoteGradients(
                            gradients_, ToFound(ctx->input(0).flat<int64_t>().data()), together)));
  }

  bool IsExpensive() override { return false; }

 private:
  SharedGradients gradients_;
};

REGISTER_KERNEL_BUILDER(Name("TfhvdFindNotFinite").Device(tensorflow::DEVICE_CPU),
                        FindNotFiniteKernel);
REGISTER_KERNEL_BUILDER(Name("TfhvdNoteNotFinite").Device(tensorflow::DEVICE_CPU),
                        NoteNotFiniteKernel);
REGISTER_KERNEL_BUILDER(Name("TfhvdNoteNotFinite")
                            .Device(tensorflow::DEVICE_GPU)
                            .HostMemory("found")
                            .HostMemory("votes"),
                        NoteNotFiniteKernel);

}  // namespace
}  // namespace tfhvd
