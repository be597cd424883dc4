#include "cc/tf/pooled_output.h"

#include <string>

#include "cc/base/memory_pool.h"
#include "cc/process/process.h"
#include "tensorflow/core/framework/allocation_description.pb.h"

namespace tfhvd {
namespace {

using tensorflow::OpKernelContext;
using tensorflow::Tensor;

// A block of the pool, for as long as some tensor refers to it.
class PooledBuffer : public tensorflow::TensorBuffer {
 public:
  PooledBuffer(void* block, size_t bytes) : TensorBuffer(block), bytes_(bytes) {}
  ~PooledBuffer() override { ProcessMemoryPool()->Give(data()); }

  size_t size() const override { return bytes_; }
  TensorBuffer* root_buffer() override { return this; }
  void FillAllocationDescription(tensorflow::AllocationDescription* description) const override {
    description->set_requested_bytes(static_cast<int64_t>(bytes_));
    description->set_allocator_name("tfhvd");
  }

 private:
  const size_t bytes_;
};

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
  const size_t bytes = input.TotalBytes();
  if (bytes < MemoryPool::kWorthKeeping || !IsPlainHostMemory(ctx, index)) {
    return ctx->allocate_output(index, input.shape(), output);
  }
  void* const block = ProcessMemoryPool()->Take(bytes);
  if (block == nullptr) {
    return absl::ResourceExhaustedError("There is no memory for a result of " +
                                        std::to_string(bytes) + " bytes.");
  }
  const tensorflow::core::RefCountPtr<tensorflow::TensorBuffer> buffer(
      new PooledBuffer(block, bytes));
  ctx->set_output(index, Tensor(input.dtype(), input.shape(), buffer.get()));
  *output = ctx->mutable_output(index);
  return absl::OkStatus();
}

}  // namespace tfhvd
