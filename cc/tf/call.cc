#include "cc/tf/call.h"

#include <algorithm>
#include <utility>

#include "cc/tf/status.h"
#include "cc/tf/types.h"

namespace tfhvd {

using tensorflow::Tensor;
using tensorflow::TensorShape;

namespace {

tensorflow::Allocator* OutputAllocator(tensorflow::OpKernelContext* ctx) {
  const tensorflow::AllocatorAttributes attributes =
      ctx->num_outputs() > 0 ? ctx->output_alloc_attr(0) : tensorflow::AllocatorAttributes();
  return ctx->device()->GetAllocator(attributes);
}

}  // namespace

Call::Call(tensorflow::OpKernelContext* ctx, tensorflow::AsyncOpKernel::DoneCallback done,
           std::shared_ptr<Cancellations> cancellations)
    : ctx_(ctx),
      done_(std::move(done)),
      cancellations_(std::move(cancellations)),
      allocator_(OutputAllocator(ctx)) {}

void Call::Add(const Tensor& input, const Tensor& output) {
  tensors_.push_back({input, output, false});
}

void Call::AddLate(const Tensor& input) { tensors_.push_back({input, Tensor(), true}); }

void Call::SetSplits(std::vector<int64_t> splits) {
  exchanges_ = true;
  splits_ = std::move(splits);
}

void Call::Fail(const absl::Status& status) {
  ctx_->SetStatus(status);
  done_();
}

bool Call::Matches(const Request& request) const {
  if (request.tensors.size() != tensors_.size() || request.weight != weight_) return false;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const Tensor& tensor = tensors_[i].input;
    const TensorSpec& spec = request.tensors[i];
    DType dtype = DType::kFloat32;
    if (!ToDType(tensor.dtype(), &dtype) || dtype != spec.dtype) return false;
    if (tensor.dims() != static_cast<int>(spec.shape.size())) return false;
    for (int d = 0; d < tensor.dims(); ++d) {
      if (tensor.dim_size(d) != spec.shape[static_cast<size_t>(d)]) return false;
    }
  }
  return true;
}

absl::Status Call::Describe(Request* request) const {
  request->weight = weight_;
  for (const Memory& tensor : tensors_) {
    TensorSpec spec;
    if (!ToDType(tensor.input.dtype(), &spec.dtype)) {
      return absl::InvalidArgumentError("'" + request->key.name +
                                        "': tfhvd has no collectives for the type " +
                                        tensorflow::DataTypeString(tensor.input.dtype()));
    }
    spec.shape = ToShape(tensor.input.shape());
    request->tensors.push_back(std::move(spec));
  }
  return absl::OkStatus();
}

void Call::Start(const std::shared_ptr<Engine>& engine, Entry entry) {
  engine_ = engine;
  for (const Memory& tensor : tensors_) {
    entry.inputs.push_back(tensor.input.data());
    entry.outputs.push_back(tensor.late ? nullptr : tensor.output.data());
  }
  // Pointers: these functions then need no memory of their own. `self_` keeps this object.
  entry.allocate = [this](int tensor, const Shape& shape, void** output) {
    return Allocate(tensor, shape, output);
  };
  if (exchanges_) {
    entry.splits = std::move(splits_);
    entry.received_splits = [this](const std::vector<int64_t>& rows) {
      received_splits_ = Tensor(tensorflow::DT_INT32, {static_cast<int64_t>(rows.size())});
      std::copy(rows.begin(), rows.end(), received_splits_.flat<int32_t>().data());
    };
  }
  entry.done = [this](const Status& status) { OnDone(status); };

  // This function's own: by the time that Submit returns the engine may have no use for the call.
  const std::shared_ptr<Call> self = shared_from_this();
  tensorflow::CancellationManager* manager = ctx_->cancellation_manager();
  if (manager != nullptr && !cancellations_->Join(manager, self)) {
    return Fail(absl::CancelledError("The step was cancelled before '" + entry.request->key.name +
                                     "' began."));
  }
  self_ = self;
  // From here on the call may end at any moment: the context is the claimant's.
  id_.store(engine->Submit(std::move(entry)));
  if (cancelled_.load()) engine->Cancel(id_.load());
}

void Call::OnCancelled() {
  cancelled_.store(true);  // before id_ is read: Start stores id_ before it reads cancelled_
  if (!Claim()) return;
  const EntryId id = id_.load();
  if (id != 0) {
    if (const std::shared_ptr<Engine> engine = engine_.lock()) engine->Cancel(id);
  }
  ctx_->SetStatus(absl::CancelledError("The step was cancelled."));
  std::exchange(done_, nullptr)();
}

void Call::OnDone(const Status& status) {
  const std::shared_ptr<Call> self = std::move(self_);
  if (Claim()) {
    End(status);
  } else {
    tensors_.clear();
  }
}

void Call::End(const Status& status) {
  cancellations_->Leave(this);  // before `done`: the manager may go with the step
  if (status.ok()) {
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (tensors_[i].late) ctx_->set_output(static_cast<int>(i), tensors_[i].output);
    }
    if (exchanges_) ctx_->set_output(1, received_splits_);
  } else {
    ctx_->SetStatus(ToAbsl(status));
  }
  // Before `done`: the next kernel may reuse memory in place only if nobody else refers to it.
  tensors_.clear();
  std::exchange(done_, nullptr)();
}

Status Call::Allocate(int tensor, const Shape& shape, void** output) {
  Memory& memory = tensors_[static_cast<size_t>(tensor)];
  TensorShape wanted;
  for (int64_t dim : shape) {
    if (!wanted.AddDimWithStatus(dim).ok()) {
      return Status::InvalidArgument("The result would have the shape " + ShapeString(shape) +
                                     ", which is too large for a tensor.");
    }
  }
  memory.output = Tensor(allocator_, memory.input.dtype(), wanted);
  if (!memory.output.IsInitialized()) {
    return Status::Unavailable("There is no memory for the result of shape " + ShapeString(shape) +
                               " and type " + tensorflow::DataTypeString(memory.input.dtype()) +
                               " on this rank.");
  }
  *output = memory.output.data();
  return Status::Ok();
}

}  // namespace tfhvd
