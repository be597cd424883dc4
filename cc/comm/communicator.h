// Communicator: collectives among a fixed set of ranks. The interface that every backend
// implements.
//
// - A call blocks until this rank's part is done; on an accelerator, until it is enqueued on the
//   device's stream (Poll reports later failures). All ranks of the communicator must issue the
//   same calls in the same order with matching arguments; the engine's negotiation ensures that.
// - One thread calls at a time (the one that runs the engine); only Abort may come from any thread.
// - Every wait within a call asks the wait monitor whether to continue (wait_monitor.h), so that a
//   failure anywhere ends the call.
// - Buffers belong to the caller. Input and output are the same address or do not overlap.
// - A call that fails leaves the outputs undefined and the communicator unusable.
// - Reductions follow numeric/arithmetic.h: every rank gets equal bits, and every flat host backend
//   gives the same bits. Ranks here are 0 .. size() - 1 within the communicator.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cc/base/status.h"
#include "cc/base/types.h"
#include "cc/comm/wait_monitor.h"
#include "cc/numeric/arithmetic.h"

namespace tfhvd {

// One of several pieces of memory that a call reads its values from and writes its results to; `in`
// and `out` are the same address or do not overlap.
struct Span {
  const void* in = nullptr;
  void* out = nullptr;
  int64_t bytes = 0;
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  // Returns the name of the transport, for people: "mpi".
  virtual const char* name() const = 0;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // out[i] = reduction over all ranks of in[i], 0 <= i < count.
  virtual Status AllReduce(const void* in, void* out, int64_t count, DType dtype,
                           const Reduction& reduction) = 0;

  // Like AllReduce, but the work may continue after StartAllReduce has returned: while the caller
  // does other things, and within these two calls. FinishAllReduce waits for the oldest successful
  // StartAllReduce. Until all are finished, the buffers are in use and no other call is allowed.
  virtual Status StartAllReduce(const void* in, void* out, int64_t count, DType dtype,
                                const Reduction& reduction) {
    return AllReduce(in, out, count, dtype, reduction);
  }
  virtual Status FinishAllReduce() { return Status::Ok(); }

  // AllReduce for values in several places, as if their bytes followed each other, without packing
  // them. Other ranks may call either form, with the same number of bytes. REQUIRES:
  // takes_spans(bytes).
  virtual Status AllReduceSpans(const std::vector<Span>& spans, DType dtype,
                                const Reduction& reduction);
  virtual bool takes_spans(int64_t /*bytes*/) const { return false; }

  // out = rank 0's bytes[0] bytes, rank 1's bytes[1], ... `in` holds bytes[rank()].
  // REQUIRES: bytes has size() entries, equal on every rank.
  virtual Status AllGather(const void* in, void* out, const std::vector<int64_t>& bytes) = 0;

  // buffer on every rank = buffer on rank `root`.
  virtual Status Broadcast(void* buffer, int64_t bytes, int root) = 0;

  // Rank r gets elements [sum of counts before r, + counts[r]) of the reduction; `in` holds all of
  // them. `in` and `out` do not overlap. REQUIRES: counts has size() entries, equal on every rank.
  virtual Status ReduceScatter(const void* in, void* out, const std::vector<int64_t>& counts,
                               DType dtype, const Reduction& reduction) = 0;

  // Sends send_bytes[r] bytes of `in` (consecutive blocks) to rank r, and receives recv_bytes[r]
  // bytes from rank r in `out`. `in` and `out` do not overlap. REQUIRES: rank a's send_bytes[b]
  // equals rank b's recv_bytes[a].
  virtual Status AllToAll(const void* in, const std::vector<int64_t>& send_bytes, void* out,
                          const std::vector<int64_t>& recv_bytes) = 0;

  virtual Status Barrier() = 0;

  // Returns whether a call for little data ends within microseconds once all ranks have made it,
  // and may be made on any thread: then a thread of the framework can make it instead of the
  // engine's thread.
  virtual bool prompt() const { return false; }

  // Returns an error if work that no call waited for has failed, or another rank has aborted. Never
  // blocks. The engine's thread, also from OnWait.
  virtual Status Poll() { return Status::Ok(); }

  // Makes the present call, and every later one, return `why`; perhaps also on other ranks. Any
  // thread.
  virtual void Abort(const Status& why) = 0;

  // Returns whether no buffer of a failed call is still in use: a transport may be unable to
  // release them at once. Never blocks. The engine's thread.
  virtual bool settled() { return true; }

  // Sets the monitor that is called in every wait from here on; not owned, may be null. The
  // engine's thread, between calls.
  virtual void SetWaitMonitor(WaitMonitor* monitor) { wait_monitor_ = monitor; }
  WaitMonitor* wait_monitor() const { return wait_monitor_; }

 protected:
  Status OnWait(const Wait& wait) {
    return wait_monitor_ != nullptr ? wait_monitor_->OnWait(wait) : Status::Ok();
  }

 private:
  WaitMonitor* wait_monitor_ = nullptr;  // Not owned.
};

inline Status Communicator::AllReduceSpans(const std::vector<Span>&, DType, const Reduction&) {
  return Status::Internal(std::string(name()) + " does not reduce what lies in several places");
}

}  // namespace tfhvd
