#include "cc/tf/collective_kernel.h"

#include <charconv>
#include <memory>
#include <string>
#include <utility>

#include "cc/process/process.h"
#include "cc/tf/pooled_output.h"
#include "cc/tf/status.h"
#include "cc/tf/stream.h"

namespace tfhvd {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

absl::Status ReadFactor(OpKernelConstruction* ctx, const char* name, double* value) {
  std::string text;
  TF_RETURN_IF_ERROR(ctx->GetAttr(name, &text));
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, *value);
  if (result.ec == std::errc() && result.ptr == end) return absl::OkStatus();
  return absl::InvalidArgumentError(std::string(name) + " is not a number. Received: '" + text +
                                    "'. Expected: decimal text such as '0.5'.");
}

// Python's number of an allreduce that is a collective of its own.
constexpr int kAdasumOp = kNumReduceOps;

absl::Status ReadReduction(OpKernelConstruction* ctx, Request* request) {
  Reduction* reduction = &request->reduction;
  int op = 0;
  TF_RETURN_IF_ERROR(ctx->GetAttr("reduce_op", &op));
  const bool adasum = op == kAdasumOp && request->kind == Collective::kAllReduce;
  if (!adasum && (op < 0 || op >= kNumReduceOps)) {
    return absl::InvalidArgumentError(
        "reduce_op is not an operation. Received: " + std::to_string(op) + ". Expected: 0 to " +
        std::to_string(kNumReduceOps - 1) + ".");
  }
  if (adasum) request->kind = Collective::kAdasum;
  reduction->op = adasum ? ReduceOp::kSum : static_cast<ReduceOp>(op);
  TF_RETURN_IF_ERROR(ReadFactor(ctx, "prescale_factor", &reduction->prescale));
  return ReadFactor(ctx, "postscale_factor", &reduction->postscale);
}

}  // namespace

CollectiveKernel::CollectiveKernel(OpKernelConstruction* ctx, Collective kind)
    : AsyncOpKernel(ctx) {
  request_.kind = kind;
  const bool on_gpu = ctx->device_type().type_string() == tensorflow::DEVICE_GPU;
  request_.device = on_gpu ? DeviceKind::kGpu : DeviceKind::kHost;
  OP_REQUIRES_OK(ctx, ctx->GetAttr("tensor_name", &request_.key.name));
  OP_REQUIRES_OK(ctx, ctx->GetAttr("anonymous", &anonymous_));
  OP_REQUIRES_OK(ctx, ctx->GetAttr("process_set_id", &request_.key.process_set));
  if (ctx->HasAttr("reduce_op")) OP_REQUIRES_OK(ctx, ReadReduction(ctx, &request_));
  if (ctx->HasAttr("root_rank")) OP_REQUIRES_OK(ctx, ctx->GetAttr("root_rank", &request_.root));
}

void CollectiveKernel::ComputeAsync(OpKernelContext* ctx, DoneCallback done) {
  const auto call = std::make_shared<Call>(ctx, std::move(done));
  const std::shared_ptr<Engine> engine = ProcessEngine();
  if (engine == nullptr) return call->Fail(ToAbsl(NotInitialized()));
  const absl::Status added = AddTensors(ctx, *engine, call.get());
  if (!added.ok()) return call->Fail(added);
  Entry entry;
  entry.request = request_;
  entry.anonymous = anonymous_;
  if (request_.device == DeviceKind::kGpu) entry.stream = StreamOf(ctx);
  call->Start(engine, std::move(entry));
}

absl::Status CollectiveKernel::AddInPlace(OpKernelContext* ctx, Call* call) {
  for (int i = 0; i < ctx->num_inputs(); ++i) {
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

absl::Status RowsUnknown(tensorflow::shape_inference::InferenceContext* c) {
  for (int i = 0; i < c->num_outputs(); ++i) {
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
