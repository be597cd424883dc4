// Device: what the executor needs of the memory that tensors live in. The host's is here; an
// accelerator's implements the same.
//
// A device may do its work later than it is asked for, as long as it does it in the order in which
// it was asked: an accelerator has a stream of its own. The framework has streams as well; the
// functions at the end put work on them in order with ours. The host does everything at once and
// has nothing to do there.
//
// Used by the engine's thread only, but for Mark and Follow.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "cc/base/status.h"
#include "cc/base/types.h"

namespace tfhvd {

class Device {
 public:
  virtual ~Device() = default;

  virtual DeviceKind kind() const = 0;

  // Of the host's scratch memory so many bytes are always to be had.
  static constexpr int64_t kReserved = 16 << 20;

  // Scratch memory through which small tensors travel together: at least `bytes` bytes, aligned to
  // a cache line. It is the same memory at every call; a larger request loses what was in it.
  // kUnavailable where there is no memory.
  virtual Status Scratch(int64_t bytes, char** out) = 0;

  // Copies between two calls of a communicator do not depend on each other, so that a device may
  // do them at once. REQUIRES: the ranges do not overlap.
  virtual Status Copy(void* to, const void* from, int64_t bytes) = 0;

  // Copies `count` numbers and multiplies them; `to` may be `from`. REQUIRES: a floating-point
  // type.
  virtual Status CopyScaled(void* to, const void* from, int64_t count, DType dtype, double factor);

  // Fills memory of this device with zeros.
  virtual Status Zero(void* to, int64_t bytes) {
    const std::vector<char> zeros(static_cast<size_t>(bytes));
    return CopyFromHost(to, zeros.data(), bytes);
  }

  // Between this device and host memory, done when the call returns.
  virtual Status CopyToHost(void* to, const void* from, int64_t bytes) {
    return Copy(to, from, bytes);
  }
  virtual Status CopyFromHost(void* to, const void* from, int64_t bytes) {
    return Copy(to, from, bytes);
  }

  // Marks the point that the framework's `stream` has come to. `memory`: a tensor of this process
  // on the device, null where all are empty. The mark may outlive its use, and the device. Any
  // thread.
  virtual Status Mark(void* /*stream*/, const void* /*memory*/, std::shared_ptr<void>* /*mark*/) {
    return Status::Ok();
  }

  // What this device is asked for from here on begins after the mark (null: nothing to wait for).
  virtual Status Await(const std::shared_ptr<void>& /*mark*/) { return Status::Ok(); }

  // The same for all that is on the framework's stream now.
  virtual Status AwaitStream(void* /*stream*/) { return Status::Ok(); }

  // What comes onto the framework's stream from here on begins after all that this device was asked
  // for.
  virtual Status Release(void* /*stream*/) { return Status::Ok(); }

  // The same in two steps, of which the second may come later and from any thread: a mark of all
  // that this device was asked for, and what comes onto the stream after Follow begins after it.
  virtual Status MarkEnd(std::shared_ptr<void>* /*mark*/) { return Status::Ok(); }
  virtual Status Follow(void* /*stream*/, const std::shared_ptr<void>& /*mark*/) {
    return Status::Ok();
  }

  // Whether something that was asked for is not done yet.
  virtual bool busy() { return false; }

  // Waits until everything that was asked for is done. The host waits in other calls as well: for
  // copies to and from it, and for room.
  virtual Status Drain() { return Status::Ok(); }

  // Asked again and again while the host waits, with how many seconds it has by now: an error ends
  // the wait. What hangs on an accelerator says nothing by itself.
  using PollHook = std::function<Status(double waited)>;
  virtual void SetPollHook(PollHook /*hook*/) {}
};

std::unique_ptr<Device> MakeHostDevice();

}  // namespace tfhvd
