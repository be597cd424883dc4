// CollectiveKernel: the common part of all kernels. A kernel names its kind of collective and adds
// its tensors; attributes, submission, cancellation and status are handled here and in Call.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>

#include "cc/base/mutex.h"
#include "cc/engine/engine.h"
#include "cc/flow/entry.h"
#include "cc/tf/call.h"
#include "cc/tf/cancellations.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

// The attributes that every op has, and those of reductions; attributes.h says what they mean.
#define TFHVD_IDENTITY_ATTRIBUTES()       \
  Input("identity: identities * string")  \
      .Attr("identities: int >= 0 = 0")   \
      .Attr("tensor_name: string")        \
      .Attr("anonymous: bool = false")    \
      .Attr("process_set_id: int = 0")    \
      .Attr("deferred: bool = false")     \
      .Attr("origin: string = ''")        \
      .Attr("backward_pass: string = ''") \
      .Attr("buckets: int = 1")           \
      .SetIsStateful() /* neither folded, nor merged with its like */
#define TFHVD_REDUCTION_ATTRIBUTES()           \
  Attr("reduce_op: int")                       \
      .Attr("prescale_factor: string = '1.0'") \
      .Attr("postscale_factor: string = '1.0'")

// The same kernel for both kinds of devices: they differ only in the place of the tensors.
#define TFHVD_REGISTER_KERNEL(op, Kernel)                                   \
  REGISTER_KERNEL_BUILDER(Name(op).Device(tensorflow::DEVICE_CPU), Kernel); \
  REGISTER_KERNEL_BUILDER(Name(op).Device(tensorflow::DEVICE_GPU).HostMemory("identity"), Kernel)

namespace tfhvd {

class CollectiveKernel : public tensorflow::AsyncOpKernel {
 public:
  CollectiveKernel(tensorflow::OpKernelConstruction* ctx, Collective kind);

  // Does not wait for other ranks, except for some microseconds if it completes a small repeating
  // step and runs it here (engine.h). One thread or several at once.
  void ComputeAsync(tensorflow::OpKernelContext* ctx, DoneCallback done) final;

  // Starting a collective takes less time than passing it to another thread.
  bool IsExpensive() final { return false; }

 protected:
  // Adds the kernel's tensors to the call. Returns kResourceExhausted if all are added but there is
  // no memory for some result: then the collective fails on every rank.
  virtual absl::Status AddTensors(tensorflow::OpKernelContext* ctx, const Engine& engine,
                                  Call* call) const = 0;

  // For AddTensors: adds every input with an output of its shape; in the input's memory if that is
  // free.
  static absl::Status AddInPlace(tensorflow::OpKernelContext* ctx, Call* call);

  // For AddTensors: adds every tensor with an output that is allocated when its shape is known.
  absl::Status AddAllLate(tensorflow::OpKernelContext* ctx, Call* call) const;

  int root() const { return request_.root; }

 private:
  // The state of the last call of an identity.
  struct Last {
    Call::Likeness likeness;
    SharedRequest request;
  };

  // Returns a request with the tensors of this call: that of the last call of its identity, if they
  // are alike.
  absl::Status RequestOf(const Call& call, const std::string& identity, SharedRequest* request)
      TFHVD_EXCLUDES(mutex_);
  absl::Status Describe(const Call& call, const std::string& identity, Last* last) const;

  Request request_;  // without tensors
  bool anonymous_ = false;
  int identities_ = 0;  // 1: the identity is the last input, not in attributes
  std::string backward_pass_;
  int32_t buckets_ = 1;
  std::shared_ptr<Cancellations> cancellations_;

  Mutex mutex_;
  std::unordered_map<std::string, Last> last_ TFHVD_GUARDED_BY(mutex_);  // by identity
};

// Each tensor (one or several) has a result of its shape.
template <Collective kKind>
class InPlaceKernel : public CollectiveKernel {
 public:
  explicit InPlaceKernel(tensorflow::OpKernelConstruction* ctx) : CollectiveKernel(ctx, kKind) {}

 private:
  absl::Status AddTensors(tensorflow::OpKernelContext* ctx, const Engine&,
                          Call* call) const override {
    return AddInPlace(ctx, call);
  }
};

// Each tensor (one or several) has a result whose number of rows depends on all ranks.
template <Collective kKind>
class LateKernel : public CollectiveKernel {
 public:
  explicit LateKernel(tensorflow::OpKernelConstruction* ctx) : CollectiveKernel(ctx, kKind) {}

 private:
  absl::Status AddTensors(tensorflow::OpKernelContext* ctx, const Engine&,
                          Call* call) const override {
    return AddAllLate(ctx, call);
  }
};

// Shape functions. SameShapes: each output has the shape of its input. RowsUnknown: likewise except
// for the first dimension, which depends on all ranks. The identity does not count as a tensor.
int NumTensors(tensorflow::shape_inference::InferenceContext* c);
absl::Status SameShapes(tensorflow::shape_inference::InferenceContext* c);
absl::Status RowsUnknown(tensorflow::shape_inference::InferenceContext* c);

}  // namespace tfhvd
