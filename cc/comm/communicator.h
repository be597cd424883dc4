// Communicator: collectives among a fixed set of ranks. The interface that every backend
// implements.
//
// - A call blocks until this rank's part is done; on an accelerator, until it is in order on the
//   device's stream (Poll tells of what fails there). All ranks of the communicator must issue the
//   same calls in the same order with matching arguments; the engine's negotiation sees to that.
// - One thread calls at a time (who runs the engine); Abort alone may come from any thread.
// - Every wait within a call asks the wait monitor whether to go on (wait_monitor.h), so that a
//   failure anywhere ends the call.
// - Buffers belong to the caller. Input and output are the same address or do not overlap.
// - A call that fails leaves the outputs undefined and the communicator unusable.
// - Reductions are those of numeric/arithmetic.h: equal bits on every rank, and from every flat
// host
//   backend. Ranks here are 0 .. size() - 1 within the communicator.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cc/base/status.h"
#include "cc/base/types.h"
#include "cc/comm/wait_monitor.h"
#include "cc/numeric/arithmetic.h"

namespace tfhvd {

// One of several pieces of memory that a call takes its values from and writes its results to; `in`
// and `out` are the same address or do not overlap.
struct Span {
  const void* in = nullptr;
  void* out = nullptr;
  int64_t bytes = 0;
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  // What carries the calls, for people: "mpi".
  virtual const char* name() const = 0;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // out[i] = reduction over all ranks of in[i], 0 <= i < count.
  virtual Status AllReduce(const void* in, void* out, int64_t count, DType dtype,
                           const Reduction& reduction) = 0;

  // The same, but it may go on after StartAllReduce has returned: while the caller does other
  // things, and within these two calls. FinishAllReduce waits for the oldest that has been started
  // without a failure. Until all are finished no other call is made; the buffers are in use until
  // then.
  virtual Status StartAllReduce(const void* in, void* out, int64_t count, DType dtype,
                                const Reduction& reduction) {
    return AllReduce(in, out, count, dtype, reduction);
  }
  virtual Status FinishAllReduce() { return Status::Ok(); }

  // AllReduce for values that lie in several places, whose bytes come one after the other, without
  // packing them. Other ranks may call either, with as many bytes. REQUIRES: takes_spans(bytes).
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

  // Sends send_bytes[r] bytes of `in` (consecutive blocks) to rank r; `out` gets recv_bytes[r] from
  // rank r. `in` and `out` do not overlap. REQUIRES: rank a's send_bytes[b] equals rank b's
  // recv_bytes[a].
  virtual Status AllToAll(const void* in, const std::vector<int64_t>& send_bytes, void* out,
                          const std::vector<int64_t>& recv_bytes) = 0;

  virtual Status Barrier() = 0;

  // Whether a call for little data is over within microseconds once all ranks have made it, and may
  // be made on any thread: then a thread of the framework's can make it in place of the engine's.
  virtual bool prompt() const { return false; }

  // Whether work that nobody waited for has failed since, or another rank has aborted, and why.
  // Never blocks. The engine's thread, also from OnWait.
  virtual Status Poll() { return Status::Ok(); }

  // Makes a call that is under way, and every later one, return `why`; maybe on other ranks, too.
  // Any thread.
  virtual void Abort(const Status& why) = 0;

  // Whether no buffer of a call that failed is touched any more: what carries the messages may be
  // unable to take them back at once. Never blocks. The engine's thread.
  virtual bool settled() { return true; }

  // Who is asked in every wait from here on; not owned, null: nobody. The engine's thread, between
  // calls.
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
