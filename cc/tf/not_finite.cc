// TfhvdFindNotFinite and TfhvdNoteNotFinite: find whether this rank's gradients of a step are
// finite, and record the result. See cc/flow/finite_vote.h.
//
// Each TfhvdFindNotFinite looks at the gradients of one bucket, when these are computed, and adds
// to the findings of those before it. The reduction of the gradients, which happens in place,
// begins afterwards: then no other operation reads them. In a compiled function, whose only order
// is that of data, it passes them on.
#include <algorithm>
#include <array>
#include <chrono>
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
    .Output("same: handed_on")
    .Attr("T: list(" TFHVD_OP_TYPES ") >= 1")
    .Attr("handed_on: list(" TFHVD_OP_TYPES ") >= 0 = []")
    .Attr("most: int = 0")
    .Attr("numbers: list(int)")
    .Attr("layers: list(int) = []")
    .Attr("sizes: string = ''")
    .Attr("last: bool = true")
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* c) {
      c->set_output(0, c->Vector(kFoundValues));
      c->set_output(1, c->Vector(kVoteValues));
      for (int i = 2; i < c->num_outputs(); ++i) c->set_output(i, c->input(i - 1));
      return absl::OkStatus();
    })
    .Doc("Adds which of the tensors are not finite, by their numbers, to what was found before.");

REGISTER_OP("TfhvdNoteNotFinite")
    .Input("found: int64")
    .Input("votes: float")
    .Attr("reductions: string")
    .Attr("labels: list(string) = []")
    .Attr("left_out: bool = false")
    .Attr("sizes: string = ''")
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
    OP_REQUIRES_OK(ctx, ctx->GetAttr("layers", &layers_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("sizes", &sizes_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("last", &last_));
    OP_REQUIRES(ctx, static_cast<int>(numbers_.size()) == ctx->num_inputs() - 1,
                absl::InvalidArgumentError("Each tensor needs its number."));
    OP_REQUIRES(ctx, sizes_.empty() || layers_.size() == numbers_.size(),
                absl::InvalidArgumentError("Each tensor needs its layer."));
    OP_REQUIRES(ctx, ctx->num_outputs() == 2 || ctx->num_outputs() == ctx->num_inputs() + 1,
                absl::InvalidArgumentError("All tensors are handed on, or none."));
  }

  void Compute(tensorflow::OpKernelContext* ctx) override {
    OP_REQUIRES_OK(ctx, CheckLength(ctx->input(0), kFoundValues));
    FoundNotFinite found = ToFound(ctx->input(0).flat<int64_t>().data());
    const std::shared_ptr<Engine> engine = ProcessEngine();
    const bool sizes = !sizes_.empty() && engine != nullptr;
    const Suspicion suspicion =
        sizes ? LookAtSizes(ctx, engine->telemetry().gradient_sizes(), &found) : Suspicion();
    if (!sizes) LookAtAll(ctx, &found);
    for (int i = 2; i < ctx->num_outputs(); ++i) ctx->set_output(i, ctx->input(i - 1));
    const int rank = engine == nullptr ? 0 : engine->topology().rank;
    const Votes votes = VoteOf(found, rank, suspicion);
    Tensor* output = nullptr;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, {kFoundValues}, &output));
    ToValues(found, output->flat<int64_t>().data());
    OP_REQUIRES_OK(ctx, ctx->allocate_output(1, {kVoteValues}, &output));
    std::copy(votes.begin(), votes.end(), output->flat<float>().data());
  }

 private:
  void LookAtAll(tensorflow::OpKernelContext* ctx, FoundNotFinite* found) const {
    for (size_t i = 0; i < numbers_.size(); ++i) {
      const Tensor& tensor = ctx->input(static_cast<int>(i) + 1);
      DType dtype;
      if (!ToDType(tensor.dtype(), &dtype)) continue;
      Look(tensor.data(), dtype, tensor.NumElements(), most_, numbers_[i], found);
    }
  }

  Suspicion LookAtSizes(tensorflow::OpKernelContext* ctx, GradientSizes* known,
                        FoundNotFinite* found) const {
    const auto begin = std::chrono::steady_clock::now();
    const int64_t most = most_ == 0 ? 0 : known->Most(sizes_);
    GradientSizes::Numbered some;
    some.reserve(numbers_.size());
    for (size_t i = 0; i < numbers_.size(); ++i) {
      const Tensor& tensor = ctx->input(static_cast<int>(i) + 1);
      DType dtype;
      if (!ToDType(tensor.dtype(), &dtype)) continue;
      some.emplace_back(numbers_[i], LookAtSize(tensor.data(), dtype, tensor.NumElements(), most,
                                                numbers_[i], layers_[i], found));
    }
    known->Add(sizes_, some, std::chrono::steady_clock::now() - begin);
    return last_ ? known->Judge(sizes_) : Suspicion();
  }

  std::vector<int64_t> numbers_;
  std::vector<int64_t> layers_;
  int64_t most_ = 0;
  std::string sizes_;
  bool last_ = true;  // of the step
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
    OP_REQUIRES_OK(ctx, ToAbsl(engine->telemetry().NoteGradients(
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
