// Call: one execution of a collective kernel, from ComputeAsync to TensorFlow's `done`.
//
// Two parties may end a call: the engine, when the collective is over, and TensorFlow, when the
// step is cancelled. The first one to claim it calls `done`; after that nobody touches the context
// or the kernel, which may be gone. The tensors belong to the call, and the call to the engine's
// entry, so that memory which the engine still reads or writes outlives a cancelled step.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "cc/engine/engine.h"
#include "cc/flow/entry.h"
#include "cc/tf/cancellations.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"

namespace tfhvd {

class Call : public Cancellations::Member, public std::enable_shared_from_this<Call> {
 public:
  // `ctx` and `done` are TensorFlow's; `ctx` lives until `done` is called.
  Call(tensorflow::OpKernelContext* ctx, tensorflow::AsyncOpKernel::DoneCallback done,
       std::shared_ptr<Cancellations> cancellations);

  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  // Before Start, once per tensor and in order: the memory that the collective reads and writes.
  // The output is one of the context's, allocated or forwarded.
  void Add(const tensorflow::Tensor& input, const tensorflow::Tensor& output);
  // The same where the output's shape is known only once every rank has said its own.
  void AddLate(const tensorflow::Tensor& input);

  // alltoall, besides AddLate: how many rows go to each rank, empty for equal parts. The context's
  // output 1 will say how many came from each.
  void SetSplits(std::vector<int64_t> splits);

  // How much this rank counts in an average.
  void SetWeight(int64_t weight) { weight_ = weight; }

  // Instead of Start: ends the call at once.
  void Fail(const absl::Status& status);

  // Whether `request` is of these tensors, as many, of these types and shapes, and of this weight.
  bool Matches(const Request& request) const;
  // Fills in the request's tensors and weight.
  absl::Status Describe(Request* request) const;

  // Submits the collective. `entry` holds the request; memory and callbacks are filled in here.
  // Waits for no other rank's program; `done` may be called before this returns.
  void Start(const std::shared_ptr<Engine>& engine, Entry entry);

 private:
  struct Memory {
    tensorflow::Tensor input;
    tensorflow::Tensor output;
    bool late = false;  // the output is allocated by Allocate
  };

  bool Claim() { return !claimed_.exchange(true); }
  void OnCancelled() override;        // by TensorFlow, on any thread
  void OnDone(const Status& status);  // by the engine, exactly once
  void End(const Status& status);     // by OnDone, as the claimant
  Status Allocate(int tensor, const Shape& shape, void** output);

  tensorflow::OpKernelContext* const ctx_;  // Not owned. Touched by the claimant only.
  tensorflow::AsyncOpKernel::DoneCallback done_;
  const std::shared_ptr<Cancellations> cancellations_;
  tensorflow::Allocator* const allocator_;  // Not owned: the device's.

  // Written before Submit, then by the engine's thread alone.
  std::shared_ptr<Call> self_;  // while the engine has the entry
  absl::InlinedVector<Memory, 1> tensors_;
  bool exchanges_ = false;  // an alltoall
  std::vector<int64_t> splits_;
  int64_t weight_ = kUnweighted;
  tensorflow::Tensor received_splits_;

  // Weak: an engine must not be destroyed by a call that ends on the engine's own thread.
  std::weak_ptr<Engine> engine_;
  std::atomic<bool> claimed_{false};
  std::atomic<bool> cancelled_{false};
  std::atomic<EntryId> id_{0};  // 0: not submitted yet
};

}  // namespace tfhvd
