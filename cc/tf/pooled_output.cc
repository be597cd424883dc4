#include "cc/tf/pooled_output.h"

#include <new>
#include <string>

#include "cc/memory/block_cache.h"
#include "cc/memory/memory_pool.h"
#include "cc/process/process.h"
#include "tensorflow/core/framework/allocation_description.pb.h"

namespace tfhvd {
namespace {

using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorBuffer;
using Buffer = tensorflow::core::RefCountPtr<TensorBuffer>;

// Memory of tfhvd, which lives as long as a tensor refers to it.
class OwnBuffer : public TensorBuffer {
 public:
  OwnBuffer(void* data, size_t bytes) : TensorBuffer(data), bytes_(bytes) {}

  size_t size() const override { return bytes_; }
  TensorBuffer* root_buffer() override { return this; }
  void FillAllocationDescription(tensorflow::AllocationDescription* description) const override {
    description->set_requested_bytes(static_cast<int64_t>(bytes_));
    description->set_allocator_name("tfhvd");
  }

 private:
  const size_t bytes_;
};

// A block of the pool.
class PooledBuffer final : public OwnBuffer {
 public:
  using OwnBuffer::OwnBuffer;
  ~PooledBuffer() override { ProcessMemoryPool()->Give(data()); }

  static Buffer Make(size_t bytes) {
    void* const block = ProcessMemoryPool()->Take(bytes);
    return Buffer(block == nullptr ? nullptr : new PooledBuffer(block, bytes));
  }
};

// A block of the cache. This object is in the block, before the data: most of the cost of a small
// result is the work of allocators.
class SmallBuffer final : public OwnBuffer {
 public:
  using OwnBuffer::OwnBuffer;

  static constexpr size_t kBefore = 64;  // the bytes before the data, aligned like the data
  static constexpr size_t kMost = BlockCache::kLargest - kBefore;

  static Buffer Make(size_t bytes) {
    static_assert(sizeof(Head) + sizeof(SmallBuffer) <= kBefore, "it lies before the data");
    static_assert(kBefore % BlockCache::kAlignment == 0, "the data are aligned");
    void* const block = ProcessBlockCache()->Take(kBefore + bytes);
    if (block == nullptr) return nullptr;
    Head* const head = new (block) Head{kBefore + bytes};
    return Buffer(::new (head + 1) SmallBuffer(static_cast<char*>(block) + kBefore, bytes));
  }

  // Called by the last owner. The size, which is needed to give the block back, outlives the
  // object.
  static void operator delete(void* object) {
    Head* const head = static_cast<Head*>(object) - 1;
    ProcessBlockCache()->Give(head, head->bytes);
  }

 private:
  struct alignas(16) Head {
    size_t bytes;  // of the block
  };
};

// Returns whether memory of these attributes is ordinary host memory that no device accesses.
bool IsPlainHostMemory(OpKernelContext* ctx, const tensorflow::AllocatorAttributes& attributes) {
  const bool on_host = ctx->device()->device_type() == tensorflow::DEVICE_CPU;
  return on_host && !attributes.gpu_compatible() && !attributes.nic_compatible();
}

// Returns null if the system has no memory.
Buffer MakeBuffer(size_t bytes) {
  return bytes <= SmallBuffer::kMost ? SmallBuffer::Make(bytes) : PooledBuffer::Make(bytes);
}

}  // namespace

absl::Status ForwardOrAllocate(OpKernelContext* ctx, int index, Tensor** output) {
  const Tensor& input = ctx->input(index);
  // An elastic job may need the input again.
  if (!JobIsElastic() &&
      ctx->forward_input_to_output_with_shape(index, index, input.shape(), output)) {
    return absl::OkStatus();
  }
  const size_t bytes = input.TotalBytes();
  if (bytes == 0 || !IsPlainHostMemory(ctx, ctx->output_alloc_attr(index))) {
    return ctx->allocate_output(index, input.shape(), output);
  }
  const Buffer buffer = MakeBuffer(bytes);
  if (buffer == nullptr) {
    return absl::ResourceExhaustedError("There is no memory for a result of " +
                                        std::to_string(bytes) + " bytes.");
  }
  ctx->set_output(index, Tensor(input.dtype(), input.shape(), buffer.get()));
  *output = ctx->mutable_output(index);
  return absl::OkStatus();
}

LateOutputMemory::LateOutputMemory(OpKernelContext* ctx) {
  const tensorflow::AllocatorAttributes attributes =
      ctx->num_outputs() > 0 ? ctx->output_alloc_attr(0) : tensorflow::AllocatorAttributes();
  const bool own = IsPlainHostMemory(ctx, attributes);
  allocator_ = own ? nullptr : ctx->device()->GetAllocator(attributes);
}

bool LateOutputMemory::Allocate(tensorflow::DataType dtype, const tensorflow::TensorShape& shape,
                                Tensor* out) const {
  const int64_t bytes = shape.num_elements() * tensorflow::DataTypeSize(dtype);
  if (allocator_ != nullptr || bytes == 0) {
    const tensorflow::AllocationAttributes at_once(/*retry_on_failure=*/false,
                                                   /*allocation_will_be_logged=*/false,
                                                   /*freed_by_func=*/nullptr);
    *out = allocator_ == nullptr ? Tensor(dtype, shape) : Tensor(allocator_, dtype, shape, at_once);
    return out->IsInitialized();
  }
  const Buffer buffer = MakeBuffer(static_cast<size_t>(bytes));
  if (buffer == nullptr) return false;
  *out = Tensor(dtype, shape, buffer.get());
  return true;
}

}  // namespace tfhvd
