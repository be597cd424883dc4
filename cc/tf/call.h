// Call: one execution of a collective kernel, from ComputeAsync to TensorFlow's `done`.
//
// Two parties may end a call: the engine, when the collective is over, and TensorFlow, when the
// step is cancelled. The first one to claim it calls `done`; after that nobody touches the context
// or the kernel, which may be gone. Until then the context holds the tensors. A cancelled call
// takes hold of them itself, and belongs to the engine's entry, so that memory which the engine
// still reads or writes outlives the step.
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
  // `ctx` and `done` are TensorFlow's; `ctx` and `cancellations` live until `done` is called.
  static std::shared_ptr<Call> Make(tensorflow::OpKernelContext* ctx,
                                    tensorflow::AsyncOpKernel::DoneCallback done,
                                    Cancellations* cancellations);

  // Not to be called: see Make.
  Call(tensorflow::OpKernelContext* ctx, tensorflow::AsyncOpKernel::DoneCallback done,
       Cancellations* cancellations);
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // Before Start, once per tensor and in order: the memory that the collective reads and writes.
  // Both are the context's, the output allocated or forwarded.
  void Add(const tensorflow::Tensor& input, const tensorflow::Tensor& output);
  // The same where there is no memory for an output: the collective is to fail.
  void AddWithout(const tensorflow::Tensor& input);
  // The same where the output's shape is known only once every rank has said its own.
  void AddLate(const tensorflow::Tensor& input);

  // alltoall, besides AddLate: how many rows go to each rank, empty for equal parts. The context's
  // output 1 will say how many came from each.
  void SetSplits(std::vector<int64_t> splits);

  // An allgather, besides AddLate: the context's last output will say how many ranks there are.
  void CountRanks() { counts_ranks_ = true; }

  // How much this rank counts in an average.
  void SetWeight(int64_t weight) { weight_ = weight; }

  // Instead of Start: ends the call at once.
  void Fail(const absl::Status& status);

  // What a request says of a call: the tensors' types and shapes, and the weight.
  struct Likeness {
    absl::InlinedVector<std::pair<tensorflow::DataType, tensorflow::TensorShape>, 1> tensors;
    int64_t weight = kUnweighted;
  };
  bool IsLike(const Likeness& other) const;
  Likeness Describe() const;

  // Submits the collective. `entry` holds the request; memory and callbacks are filled in here.
  // Waits for no other rank's program; `done` may be called before this returns.
  void Start(const std::shared_ptr<Engine>& engine, Entry entry);

 private:
  struct Memory {
    const tensorflow::Tensor* input = nullptr;   // Not owned: the context's.
    const tensorflow::Tensor* output = nullptr;  // likewise; null: it comes late
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
  Cancellations* const cancellations_;  // Not owned. Likewise.

  // Written before Submit.
  absl::InlinedVector<Memory, 1> tensors_;
  std::optional<LateOutputMemory> late_memory_;  // where any output comes late
  bool exchanges_ = false;                       // an alltoall
  std::vector<int64_t> splits_;
  bool counts_ranks_ = false;
  int64_t weight_ = kUnweighted;

  // Touched by the engine's thread alone, from Submit on.
  std::shared_ptr<Call> self_;            // while the engine has the entry
  std::vector<tensorflow::Tensor> late_;  // by tensor; empty where none comes late
  tensorflow::Tensor received_splits_;
  int32_t ranks_ = 0;      // where they are counted
  bool retained_ = false;  // the engine has claimed the call, and is to end it

  // Touched by the claimant only: tensors that are to live as long as this object does.
  absl::InlinedVector<tensorflow::Tensor, 1> held_;

  // Weak: an engine must not be destroyed by a call that ends on the engine's own thread.
  std::weak_ptr<Engine> engine_;
  std::atomic<bool> claimed_{false};
  Withdrawal withdrawal_;
};

}  // namespace tfhvd
