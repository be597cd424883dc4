// Device: the operations that the executor needs on the memory of tensors. The host's
// implementation is here; an accelerator implements the same interface.
//
// A device may do its work later than requested, as long as it keeps the order of the requests: an
// accelerator does it on a stream. The framework has streams, too; the functions at the end order
// its work and ours. The host works at once, so these functions do nothing there.
//
// Used by the engine's thread only, except Mark and Follow.
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

  // The host's scratch memory always has at least so many bytes.
  static constexpr int64_t kReserved = 16 << 20;

  // Returns scratch memory in which small tensors are fused: at least `bytes` bytes, aligned to a
  // cache line. It is the same memory at every call; a larger request loses its contents. Returns
  // kUnavailable if there is no memory.
  virtual Status Scratch(int64_t bytes, char** out) = 0;

  // Copies memory. Copies between two calls of a communicator do not depend on each other, so that
  // a device may make them together. REQUIRES: the ranges do not overlap.
  virtual Status Copy(void* to, const void* from, int64_t bytes) = 0;

  // Copies `count` numbers and multiplies them; `to` may equal `from`. REQUIRES: a floating-point
  // type.
  virtual Status CopyScaled(void* to, const void* from, int64_t count, DType dtype, double factor);

  // Fills memory of this device with zeros.
  virtual Status Zero(void* to, int64_t bytes) {
    const std::vector<char> zeros(static_cast<size_t>(bytes));
    return CopyFromHost(to, zeros.data(), bytes);
  }

  // Copy between this device and host memory; complete when the call returns.
  virtual Status CopyToHost(void* to, const void* from, int64_t bytes) {
    return Copy(to, from, bytes);
  }
  virtual Status CopyFromHost(void* to, const void* from, int64_t bytes) {
    return Copy(to, from, bytes);
  }

  // Marks the present point of the framework's `stream`. `memory`: a tensor of this process on the
  // device, null if all are empty. The mark may outlive its use, and the device. Any thread.
  virtual Status Mark(void* /*stream*/, const void* /*memory*/, std::shared_ptr<void>* /*mark*/) {
    return Status::Ok();
  }

  // Makes later work of this device wait for the mark (null: no wait).
  virtual Status Await(const std::shared_ptr<void>& /*mark*/) { return Status::Ok(); }

  // Makes later work of this device wait for all present work on the framework's stream.
  virtual Status AwaitStream(void* /*stream*/) { return Status::Ok(); }

  // Makes later work on the framework's stream wait for all work that this device was asked for.
  virtual Status Release(void* /*stream*/) { return Status::Ok(); }

  // Release in two steps, of which the second may come later and on any thread: MarkEnd marks all
  // work that this device was asked for, and Follow makes later work on the stream wait for the
  // mark.
  virtual Status MarkEnd(std::shared_ptr<void>* /*mark*/) { return Status::Ok(); }
  virtual Status Follow(void* /*stream*/, const std::shared_ptr<void>& /*mark*/) {
    return Status::Ok();
  }

  // Returns whether the device has unfinished work.
  virtual bool busy() { return false; }

  // Waits until all work is done. The host waits in other calls, too: for copies to and from it,
  // and for scratch memory.
  virtual Status Drain() { return Status::Ok(); }

  // Called repeatedly while the host waits, with the seconds of the wait so far: an error ends the
  // wait. An accelerator that hangs reports nothing.
  using PollHook = std::function<Status(double waited)>;
  virtual void SetPollHook(PollHook /*hook*/) {}
};

std::unique_ptr<Device> MakeHostDevice();

}  // namespace tfhvd
