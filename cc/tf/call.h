// Call: one execution of a collective kernel, from ComputeAsync to TensorFlow's `done`.
//
// Two parties may end a call: the engine, when the collective is over, and TensorFlow, when the
// step is cancelled. The first to claim it calls `done`; afterwards the context and the kernel must
// not be used, because they may be gone. Until then the context holds the tensors. A cancelled call
// takes references to them itself, and belongs to the engine's entry, so that memory which the
// engine still reads or writes outlives the step.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "cc/engine/engine.h"
#include "cc/flow/entry.h"
#include "cc/tf/cancellations.h"
#include "cc/tf/pooled_output.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"

namespace tfhvd {

class Call : public Cancellations::Member, public std::enable_shared_from_this<Call> {
 public:
  // `ctx` and `done` are TensorFlow's; `ctx` and `cancellations` must live until `done` is called.
  static std::shared_ptr<Call> Make(tensorflow::OpKernelContext* ctx,
                                    tensorflow::AsyncOpKernel::DoneCallback done,
                                    Cancellations* cancellations);

  // Only for Make.
  Call(tensorflow::OpKernelContext* ctx, tensorflow::AsyncOpKernel::DoneCallback done,
       Cancellations* cancellations);
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // Adds a tensor: the memory that the collective reads and writes. Call before Start, once for
  // each tensor, in order. Both belong to the context; the output is allocated or forwarded.
  void Add(const tensorflow::Tensor& input, const tensorflow::Tensor& output);
  // Adds a tensor for whose output there is no memory: the collective will fail.
  void AddWithout(const tensorflow::Tensor& input);
  // Adds a tensor whose output shape is known only when every rank has sent its shape.
  void AddLate(const tensorflow::Tensor& input);

  // alltoall, in addition to AddLate: how many rows go to each rank, empty for equal parts. The
  // context's output 1 will say how many came from each.
  void SetSplits(std::vector<int64_t> splits);

  // An allgather, in addition to AddLate: the context's last output will be the number of ranks.
  void CountRanks() { counts_ranks_ = true; }

  // Sets this rank's weight in an average.
  void SetWeight(int64_t weight) { weight_ = weight; }

  // Instead of Start: ends the call at once.
  void Fail(const absl::Status& status);

  // The part of a call that its request depends on: the tensors' types and shapes, and the weight.
  struct Likeness {
    absl::InlinedVector<std::pair<tensorflow::DataType, tensorflow::TensorShape>, 1> tensors;
    int64_t weight = kUnweighted;
  };
  bool IsLike(const Likeness& other) const;
  Likeness Describe() const;

  // Submits the collective. `entry` holds the request; this function sets memory and callbacks.
  // Does not wait for another rank's program. `done` may be called before this returns.
  void Start(const std::shared_ptr<Engine>& engine, Entry entry);

 private:
  struct Memory {
    const tensorflow::Tensor* input = nullptr;   // Not owned: the context's.
    const tensorflow::Tensor* output = nullptr;  // Not owned: the context's; null: allocated late
    tensorflow::DataType dtype = tensorflow::DT_INVALID;
  };

  bool Claim() { return !claimed_.exchange(true); }
  void OnCancelled() override;        // by TensorFlow, on any thread
  void OnDone(const Status& status);  // by the engine, exactly once
  void End(const Status& status);     // by OnDone, as the claimant
  Status Allocate(int tensor, const Shape& shape, void** output);
  std::shared_ptr<void> Retain(Retained what);

  tensorflow::OpKernelContext* const ctx_;  // Not owned. Touched by the claimant only.
  tensorflow::AsyncOpKernel::DoneCallback done_;
  Cancellations* const cancellations_;  // Not owned; touched by the claimant only.

  // Written before Submit.
  absl::InlinedVector<Memory, 1> tensors_;
  std::optional<LateOutputMemory> late_memory_;  // if any output is allocated late
  bool exchanges_ = false;                       // whether it is an alltoall
  std::vector<int64_t> splits_;
  bool counts_ranks_ = false;
  int64_t weight_ = kUnweighted;

  // Touched only by the engine's thread, from Submit on.
  std::shared_ptr<Call> self_;            // while the engine has the entry
  std::vector<tensorflow::Tensor> late_;  // by tensor; empty if none is allocated late
  tensorflow::Tensor received_splits_;
  int32_t ranks_ = 0;      // if they are counted
  bool retained_ = false;  // the engine has claimed the call, and must end it

  // Touched by the claimant only: tensors that must live as long as this object.
  absl::InlinedVector<tensorflow::Tensor, 1> held_;

  // Weak: a call that ends on the engine's thread must not destroy the engine.
  std::weak_ptr<Engine> engine_;
  std::atomic<bool> claimed_{false};
  Withdrawal withdrawal_;
};

}  // namespace tfhvd
