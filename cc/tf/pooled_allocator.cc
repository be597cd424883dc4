#include "cc/tf/pooled_allocator.h"

#include <string>

#include "cc/base/memory_pool.h"
#include "cc/process/process.h"
#include "tensorflow/core/framework/allocator.h"

namespace tfhvd {
namespace {

using tensorflow::OpKernelContext;
using tensorflow::Tensor;

class PooledAllocator : public tensorflow::Allocator {
 public:
  std::string Name() override { return "tfhvd"; }
  void* AllocateRaw(size_t, size_t bytes) override { return ProcessMemoryPool()->Take(bytes); }
  void DeallocateRaw(void* data) override { ProcessMemoryPool()->Give(data); }
};

// Without state of its own, and never destroyed: tensors may outlive whoever made them.
PooledAllocator* ThePooledAllocator() {
  static PooledAllocator* const allocator = new PooledAllocator();
  return allocator;
}

// Whether the output lies in ordinary host memory, that no device needs to reach.
bool IsPlainHostMemory(OpKernelContext* ctx, int index) {
  const tensorflow::AllocatorAttributes attributes = ctx->output_alloc_attr(index);
  const bool on_host = ctx->device()->device_type() == tensorflow::DEVICE_CPU;
  return on_host && !attributes.gpu_compatible() && !attributes.nic_compatible();
}

}  // namespace

absl::Status ForwardOrAllocate(OpKernelContext* ctx, int index, Tensor** output) {
  const Tensor& input = ctx->input(index);
  if (ctx->forward_input_to_output_with_shape(index, index, input.shape(), output)) {
    return absl::OkStatus();
  }
  if (input.TotalBytes() < MemoryPool::kWorthKeeping || !IsPlainHostMemory(ctx, index)) {
    return ctx->allocate_output(index, input.shape(), output);
  }
  Tensor pooled(ThePooledAllocator(), input.dtype(), input.shape());
  if (!pooled.IsInitialized()) {
    return absl::ResourceExhaustedError("There is no memory for a result of " +
                                        std::to_string(input.TotalBytes()) + " bytes.");
  }
  ctx->set_output(index, pooled);
  *output = ctx->mutable_output(index);
  return absl::OkStatus();
}

}  // namespace tfhvd
