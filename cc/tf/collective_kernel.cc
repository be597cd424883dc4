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

namespace {

// The number of identities whose last call a kernel remembers.
constexpr size_t kMostIdentities = 2048;

// Returns a request that this rank submits in spite of the error, so that the other ranks fail with
// it and do not wait.
SharedRequest WithoutMemory(Request request, int rank, const absl::Status& why) {
  request.fault = Status::Unavailable(
      std::string(CollectiveName(request.kind)) + " '" + request.key.name +
      "' has failed on every rank: rank " + std::to_string(rank) + " cannot get the " +
      std::to_string(BytesOf(request)) + " bytes of memory for its result (" +
      std::string(why.message()) + "). Give it less data at once, or the process more memory.");
  return SharedRequest(std::move(request));
}

}  // namespace

CollectiveKernel::CollectiveKernel(OpKernelConstruction* ctx, Collective kind)
    : AsyncOpKernel(ctx) {
  OP_REQUIRES_OK(ctx, ReadRequest(ctx, kind, &request_, &anonymous_));
  OP_REQUIRES_OK(ctx, ctx->GetAttr("identities", &identities_));
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
  const bool lacks = absl::IsResourceExhausted(added);
  if (!added.ok() && !lacks) return call->Fail(added);
  Entry entry;
  const std::string identity =
      identities_ == 0 ? "" : ctx->input(ctx->num_inputs() - 1).scalar<tensorflow::tstring>()();
  const absl::Status described = RequestOf(*call, identity, &entry.request);
  if (!described.ok()) return call->Fail(described);
  if (lacks) entry.request = WithoutMemory(*entry.request, engine->topology().rank, added);
  entry.anonymous = anonymous_;
  if (request_.device == DeviceKind::kGpu) entry.EditExtras()->stream = StreamOf(ctx);
  if (!backward_pass_.empty() && engine->has_accelerator()) {
    entry.EditExtras()->backward_pass = backward_pass_;
    entry.EditExtras()->buckets = buckets_;
  }
  call->Start(engine, std::move(entry));
}

absl::Status CollectiveKernel::RequestOf(const Call& call, const std::string& identity,
                                         SharedRequest* request) {
  const MutexLock lock(&mutex_);
  auto known = last_.find(identity);
  if (known == last_.end() && last_.size() == kMostIdentities) last_.clear();
  if (known == last_.end()) known = last_.try_emplace(identity).first;
  Last* const last = &known->second;
  if (last->request.get() == nullptr || !call.IsLike(last->likeness)) {
    TF_RETURN_IF_ERROR(Describe(call, identity, last));
  }
  *request = last->request;
  return absl::OkStatus();
}

absl::Status CollectiveKernel::Describe(const Call& call, const std::string& identity,
                                        Last* last) const {
  Call::Likeness likeness = call.Describe();
  Request described = request_;
  if (identities_ > 0) TF_RETURN_IF_ERROR(ReadIdentity(identity, &described.key));
  described.weight = likeness.weight;
  for (const auto& [dtype, shape] : likeness.tensors) {
    TensorSpec spec;
    if (!ToDType(dtype, &spec.dtype)) {
      return absl::InvalidArgumentError("'" + described.key.name +
                                        "': tfhvd has no collectives for the type " +
                                        tensorflow::DataTypeString(dtype));
    }
    spec.shape = ToShape(shape);
    described.tensors.push_back(std::move(spec));
  }
  last->likeness = std::move(likeness);
  last->request = SharedRequest(std::move(described));
  return absl::OkStatus();
}

absl::Status CollectiveKernel::AddInPlace(OpKernelContext* ctx, Call* call) {
  absl::Status lack;
  for (int i = 0; i < ctx->num_outputs(); ++i) {
    Tensor* output = nullptr;
    const absl::Status status = ForwardOrAllocate(ctx, i, &output);
    if (!status.ok() && !absl::IsResourceExhausted(status)) return status;
    lack.Update(status);
    if (status.ok()) {
      call->Add(ctx->input(i), *output);
    } else {
      call->AddWithout(ctx->input(i));
    }
  }
  return lack;
}

absl::Status CollectiveKernel::AddAllLate(OpKernelContext* ctx, Call* call) const {
  for (int i = 0; i < ctx->num_inputs() - identities_; ++i) call->AddLate(ctx->input(i));
  return absl::OkStatus();
}

int NumTensors(tensorflow::shape_inference::InferenceContext* c) {
  int identities = 0;
  return c->GetAttr("identities", &identities).ok() ? c->num_inputs() - identities
                                                    : c->num_inputs();
}

absl::Status SameShapes(tensorflow::shape_inference::InferenceContext* c) {
  for (int i = 0; i < c->num_outputs(); ++i) c->set_output(i, c->input(i));
  return absl::OkStatus();
}

absl::Status RowsUnknown(tensorflow::shape_inference::InferenceContext* c) {
  for (int i = 0; i < NumTensors(c); ++i) {
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
