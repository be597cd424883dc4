#include "cc/tf/collective_kernel.h"

#include <memory>
#include <utility>

#include "cc/process/process.h"
#include "cc/tf/attributes.h"
#include "cc/tf/pooled_output.h"
#include "cc/tf/status.h"
#include "cc/tf/stream.h"
#include "cc/tf/types.h"

namespace tfhvd {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

CollectiveKernel::CollectiveKernel(OpKernelConstruction* ctx, Collective kind)
    : AsyncOpKernel(ctx) {
  OP_REQUIRES_OK(ctx, ReadRequest(ctx, kind, &request_, &anonymous_));
  OP_REQUIRES_OK(ctx, ctx->GetAttr("backward_pass", &backward_pass_));
  OP_REQUIRES_OK(ctx, ctx->GetAttr("buckets", &buckets_));
  OP_REQUIRES_OK(ctx, Cancellations::Of(ctx, &cancellations_));
  if (ctx->device_type().type_string() == tensorflow::DEVICE_GPU) {
    request_.device = DeviceKind::kGpu;
  }
}

void CollectiveKernel::ComputeAsync(OpKernelContext* ctx, DoneCallback done) {
  const std::shared_ptr<Call> call = Call::Make(ctx, std::move(done), cancellations_.get());
  const std::shared_ptr<Engine> engine = ProcessEngine();
  if (engine == nullptr) return call->Fail(ToAbsl(NotInitialized()));
  const absl::Status added = AddTensors(ctx, *engine, call.get());
  if (!added.ok()) return call->Fail(added);
  Entry entry;
  const absl::Status described = RequestOf(*call, &entry.request);
  if (!described.ok()) return call->Fail(described);
  entry.anonymous = anonymous_;
  if (request_.device == DeviceKind::kGpu) entry.EditExtras()->stream = StreamOf(ctx);
  if (!backward_pass_.empty() && engine->has_accelerator()) {
    entry.EditExtras()->backward_pass = backward_pass_;
    entry.EditExtras()->buckets = buckets_;
  }
  call->Start(engine, std::move(entry));
}

absl::Status CollectiveKernel::RequestOf(const Call& call, SharedRequest* request) {
  const MutexLock lock(&mutex_);
  if (last_request_.get() == nullptr || !call.IsLike(last_)) {
    Call::Likeness likeness = call.Describe();
    Request described = request_;
    described.weight = likeness.weight;
    for (const auto& [dtype, shape] : likeness.tensors) {
      TensorSpec spec;
      if (!ToDType(dtype, &spec.dtype)) {
        return absl::InvalidArgumentError("'" + request_.key.name +
                                          "': tfhvd has no collectives for the type " +
                                          tensorflow::DataTypeString(dtype));
      }
      spec.shape = ToShape(shape);
      described.tensors.push_back(std::move(spec));
    }
    last_ = std::move(likeness);
    last_request_ = SharedRequest(std::move(described));
  }
  *request = last_request_;
  return absl::OkStatus();
}

absl::Status CollectiveKernel::AddInPlace(OpKernelContext* ctx, Call* call) {
  for (int i = 0; i < ctx->num_outputs(); ++i) {
    Tensor* output = nullptr;
    TF_RETURN_IF_ERROR(ForwardOrAllocate(ctx, i, &output));
    call->Add(ctx->input(i), *output);
  }
  return absl::OkStatus();
}

absl::Status CollectiveKernel::AddAllLate(OpKernelContext* ctx, Call* call) {
  for (int i = 0; i < ctx->num_inputs(); ++i) call->AddLate(ctx->input(i));
  return absl::OkStatus();
}

absl::Status SameShapes(tensorflow::shape_inference::InferenceContext* c) {
  for (int i = 0; i < c->num_outputs(); ++i) c->set_output(i, c->input(i));
  return absl::OkStatus();
}

absl::Status RowsUnknown(tensorflow::shape_inference::InferenceContext* c) {
  for (int i = 0; i < c->num_inputs(); ++i) {
    tensorflow::shape_inference::ShapeHandle shape;
    TF_RETURN_IF_ERROR(c->WithRankAtLeast(c->input(i), 1, &shape));
    if (c->RankKnown(shape)) {
      TF_RETURN_IF_ERROR(c->ReplaceDim(shape, 0, c->UnknownDim(), &shape));
    }
    c->set_output(i, shape);
  }
  return absl::OkStatus();
}

}  // namespace tfhvd
