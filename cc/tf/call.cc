#include "cc/tf/call.h"

#include <algorithm>
#include <utility>

#include "cc/tf/status.h"
#include "cc/tf/types.h"

namespace tfhvd {

using tensorflow::Tensor;
using tensorflow::TensorShape;

namespace {

tensorflow::CancellationToken NewToken(tensorflow::OpKernelContext* ctx) {
  return ctx->cancellation_manager() == nullptr
             ? tensorflow::CancellationManager::kInvalidToken
             : ctx->cancellation_manager()->get_cancellation_token();
}

tensorflow::Allocator* OutputAllocator(tensorflow::OpKernelContext* ctx) {
  const tensorflow::AllocatorAttributes attributes =
      ctx->num_outputs() > 0 ? ctx->output_alloc_attr(0) : tensorflow::AllocatorAttributes();
  return ctx->device()->GetAllocator(attributes);
}

}  // namespace

Call::Call(tensorflow::OpKernelContext* ctx, tensorflow::AsyncOpKernel::DoneCallback done)
    : ctx_(ctx), done_(std::move(done)), token_(NewToken(ctx)), allocator_(OutputAllocator(ctx)) {}

void Call::Add(const Tensor& input, const Tensor& output) {
  inputs_.push_back(input);
  outputs_.push_back(output);
  late_.push_back(false);
}

void Call::AddLate(const Tensor& input) {
  inputs_.push_back(input);
  outputs_.emplace_back();
  late_.push_back(true);
}

void Call::SetSplits(std::vector<int64_t> splits) {
  exchanges_ = true;
  splits_ = std::move(splits);
}

void Call::Fail(const absl::Status& status) {
  ctx_->SetStatus(status);
  done_();
}

void Call::Start(const std::shared_ptr<Engine>& engine, Entry entry) {
  engine_ = engine;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    TensorSpec spec;
    if (!ToDType(inputs_[i].dtype(), &spec.dtype)) {
      return Fail(absl::InvalidArgumentError("'" + entry.request.key.name +
                                             "': tfhvd has no collectives for the type " +
                                             tensorflow::DataTypeString(inputs_[i].dtype())));
    }
    spec.shape = ToShape(inputs_[i].shape());
    entry.request.tensors.push_back(std::move(spec));
    entry.inputs.push_back(inputs_[i].data());
    entry.outputs.push_back(late_[i] ? nullptr : outputs_[i].data());
  }
  const std::shared_ptr<Call> self = shared_from_this();
  entry.allocate = [self](int tensor, const Shape& shape, void** output) {
    return self->Allocate(tensor, shape, output);
  };
  if (exchanges_) {
    entry.splits = std::move(splits_);
    entry.received_splits = [self](const std::vector<int64_t>& rows) {
      self->received_splits_ = Tensor(tensorflow::DT_INT32, {static_cast<int64_t>(rows.size())});
      std::copy(rows.begin(), rows.end(), self->received_splits_.flat<int32_t>().data());
    };
  }
  entry.done = [self](const Status& status) { self->OnDone(status); };

  tensorflow::CancellationManager* manager = ctx_->cancellation_manager();
  if (manager != nullptr && !manager->RegisterCallback(token_, [self] { self->OnCancelled(); })) {
    return Fail(absl::CancelledError("The step was cancelled before '" + entry.request.key.name +
                                     "' began."));
  }
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
  if (!Claim()) {
    inputs_.clear();
    outputs_.clear();
    return;
  }
  // The callback may be running at this moment: it finds the call claimed.
  if (ctx_->cancellation_manager() != nullptr) {
    ctx_->cancellation_manager()->TryDeregisterCallback(token_);
  }
  if (status.ok()) {
    for (size_t i = 0; i < outputs_.size(); ++i) {
      if (late_[i]) ctx_->set_output(static_cast<int>(i), outputs_[i]);
    }
    if (exchanges_) ctx_->set_output(1, received_splits_);
  } else {
    ctx_->SetStatus(ToAbsl(status));
  }
  // Before `done`: the next kernel may reuse memory in place only if nobody else refers to it.
  inputs_.clear();
  outputs_.clear();
  std::exchange(done_, nullptr)();
}

Status Call::Allocate(int tensor, const Shape& shape, void** output) {
  const size_t i = static_cast<size_t>(tensor);
  TensorShape wanted;
  for (int64_t dim : shape) {
    if (!wanted.AddDimWithStatus(dim).ok()) {
      return Status::InvalidArgument("The result would have the shape " + ShapeString(shape) +
                                     ", which is too large for a tensor.");
    }
  }
  outputs_[i] = Tensor(allocator_, inputs_[i].dtype(), wanted);
  if (!outputs_[i].IsInitialized()) {
    return Status::Unavailable("There is no memory for the result of shape " + ShapeString(shape) +
                               " and type " + tensorflow::DataTypeString(inputs_[i].dtype()) +
                               " on this rank.");
  }
  *output = outputs_[i].data();
  return Status::Ok();
}

}  // namespace tfhvd
