#include "cc/tf/call.h"

#include <algorithm>
#include <new>
#include <utility>

#include "cc/memory/block_cache.h"
#include "cc/process/process.h"
#include "cc/tf/status.h"

namespace tfhvd {

using tensorflow::Tensor;
using tensorflow::TensorShape;

namespace {

// Calls are numerous, equally large, and live for a short time together.
template <typename T>
struct CachedAllocator {
  using value_type = T;

  CachedAllocator() = default;
  template <typename U>
  explicit CachedAllocator(const CachedAllocator<U>&) {}

  T* allocate(size_t count) {
    static_assert(alignof(T) <= BlockCache::kAlignment, "blocks are aligned to that");
    void* const block = ProcessBlockCache()->Take(count * sizeof(T));
    if (block == nullptr) throw std::bad_alloc();  // as operator new does
    return static_cast<T*>(block);
  }
  void deallocate(T* block, size_t count) { ProcessBlockCache()->Give(block, count * sizeof(T)); }

  template <typename U>
  bool operator==(const CachedAllocator<U>&) const {
    return true;
  }
  template <typename U>
  bool operator!=(const CachedAllocator<U>&) const {
    return false;
  }
};

}  // namespace

std::shared_ptr<Call> Call::Make(tensorflow::OpKernelContext* ctx,
                                 tensorflow::AsyncOpKernel::DoneCallback done,
                                 Cancellations* cancellations) {
  return std::allocate_shared<Call>(CachedAllocator<Call>(), ctx, std::move(done), cancellations);
}

Call::Call(tensorflow::OpKernelContext* ctx, tensorflow::AsyncOpKernel::DoneCallback done,
           Cancellations* cancellations)
    : ctx_(ctx), done_(std::move(done)), cancellations_(cancellations) {}

void Call::Add(const Tensor& input, const Tensor& output) {
  tensors_.push_back({&input, &output, input.dtype()});
}

void Call::AddWithout(const Tensor& input) { tensors_.push_back({&input, nullptr, input.dtype()}); }

void Call::AddLate(const Tensor& input) {
  AddWithout(input);
  if (!late_memory_.has_value()) late_memory_.emplace(ctx_);
}

void Call::SetSplits(std::vector<int64_t> splits) {
  exchanges_ = true;
  splits_ = std::move(splits);
}

void Call::Fail(const absl::Status& status) {
  ctx_->SetStatus(status);
  done_();
}

bool Call::IsLike(const Likeness& other) const {
  if (other.tensors.size() != tensors_.size() || other.weight != weight_) return false;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const auto& [dtype, shape] = other.tensors[i];
    if (dtype != tensors_[i].dtype || shape != tensors_[i].input->shape()) return false;
  }
  return true;
}

Call::Likeness Call::Describe() const {
  Likeness likeness;
  likeness.weight = weight_;
  for (const Memory& tensor : tensors_) {
    likeness.tensors.emplace_back(tensor.dtype, tensor.input->shape());
  }
  return likeness;
}

void Call::Start(const std::shared_ptr<Engine>& engine, Entry entry) {
  engine_ = engine;
  for (const Memory& tensor : tensors_) {
    entry.inputs.push_back(tensor.input->data());
    entry.outputs.push_back(tensor.output == nullptr ? nullptr : tensor.output->data());
  }
  // The functions capture pointers only, and so allocate no memory. `self_` keeps this object
  // alive.
  if (late_memory_.has_value()) {
    late_.resize(tensors_.size());
    entry.allocate = [this](int tensor, const Shape& shape, void** output) {
      return Allocate(tensor, shape, output);
    };
  }
  entry.retain = [this](Retained what) { return Retain(what); };
  if (exchanges_) {
    entry.EditExtras()->splits = std::move(splits_);
    entry.EditExtras()->received_splits = [this](const std::vector<int64_t>& rows) {
      received_splits_ = Tensor(tensorflow::DT_INT32, {static_cast<int64_t>(rows.size())});
      std::copy(rows.begin(), rows.end(), received_splits_.flat<int32_t>().data());
    };
  }
  if (counts_ranks_) {
    entry.EditExtras()->gathers = [this](int, const std::vector<int64_t>& first_dims) {
      ranks_ = static_cast<int32_t>(first_dims.size());
    };
  }

  // A second reference: when Submit returns, the engine may have dropped the call.
  const std::shared_ptr<Call> self = shared_from_this();
  tensorflow::CancellationManager* manager = ctx_->cancellation_manager();
  if (manager != nullptr && !cancellations_->Join(manager, self)) {
    return Fail(absl::CancelledError("The step was cancelled before '" + entry.request->key.name +
                                     "' began."));
  }
  // Set last: a dropped entry calls its `done`, and before this point the function itself ends the
  // call.
  entry.done = [this](const Status& status) { OnDone(status); };
  self_ = self;
  entry.withdrawal = &withdrawal_;
  // From here on the call may end at any moment: only the claimant may use the context.
  (void)SubmitToJob(engine, std::move(entry));
}

void Call::OnCancelled() {
  const EntryId id = withdrawal_.Ask();
  if (!Claim()) return;
  if (id != 0) CancelInJob(engine_.lock(), id);
  for (const Memory& tensor : tensors_) {
    held_.push_back(*tensor.input);
    if (tensor.output != nullptr) held_.push_back(*tensor.output);
  }
  ctx_->SetStatus(absl::CancelledError("The step was cancelled."));
  std::exchange(done_, nullptr)();
}

void Call::OnDone(const Status& status) {
  const std::shared_ptr<Call> self = std::move(self_);
  if (retained_ || Claim()) End(status);
}

// Returns this object, which keeps everything that is in use or needed after TensorFlow has its
// tensors back. A cancelled call holds the tensors already.
std::shared_ptr<void> Call::Retain(Retained what) {
  if (!Claim()) return shared_from_this();
  retained_ = true;
  held_.assign(late_.begin(), late_.end());
  for (const Memory& tensor : tensors_) {
    if (what == Retained::kAll) held_.push_back(*tensor.input);
    if (tensor.output != nullptr) held_.push_back(*tensor.output);
  }
  return shared_from_this();
}

void Call::End(const Status& status) {
  cancellations_->Leave(this);  // before `done`: the manager may end with the step
  if (status.ok()) {
    for (size_t i = 0; i < late_.size(); ++i) {
      ctx_->set_output(static_cast<int>(i), std::move(late_[i]));
    }
    if (exchanges_) ctx_->set_output(1, received_splits_);
    if (counts_ranks_) ctx_->set_output(ctx_->num_outputs() - 1, Tensor(ranks_));
  } else {
    ctx_->SetStatus(ToAbsl(status));
  }
  // Before `done`: the next kernel may reuse memory in place only if there is no other reference.
  late_.clear();
  std::exchange(done_, nullptr)();
}

Status Call::Allocate(int tensor, const Shape& shape, void** output) {
  const tensorflow::DataType dtype = tensors_[static_cast<size_t>(tensor)].dtype;
  TensorShape wanted;
  for (int64_t dim : shape) {
    if (!wanted.AddDimWithStatus(dim).ok()) {
      return Status::InvalidArgument("The result would have the shape " + ShapeString(shape) +
                                     ", which is too large for a tensor.");
    }
  }
  Tensor& made = late_[static_cast<size_t>(tensor)];
  made = Tensor();  // from an earlier attempt
  if (!late_memory_->Allocate(dtype, wanted, &made)) {
    return Status::Unavailable("There is no memory for the result of shape " + ShapeString(shape) +
                               " and type " + tensorflow::DataTypeString(dtype) + " on this rank.");
  }
  *output = made.data();
  return Status::Ok();
}

}  // namespace tfhvd
