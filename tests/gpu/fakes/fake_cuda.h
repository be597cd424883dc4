// A fake for CUDA's driver on host memory, for tests without a GPU: what its parts share.
//
// Streams are threads that take work in order, events count, device memory is the host's. It says
// nothing of how a GPU behaves in time, in memory or when it fails: a GPU has the last word.
#pragma once

#include <functional>
#include <string>

#include "cc/device/cuda_abi.h"

namespace fake {

// A test's setting: FAKE_X of the environment as TFHVD_FAKE_X, or set by tfhvd_fake_set("X", n).
//   GPUS             how many there are (2)
//   NO_KERNELS       1: kernels cannot be loaded
//   DELAY_MS         every stream without priority (a framework's) does each piece of work so late
//   NCCL_FAIL_AFTER  n > 0: each communicator's n-th collective fails while it is under way
//   NCCL_CLOSED_AFTER  likewise, as where a peer has ended
//   NCCL_UNREACHABLE 1: communicators do not find their peers
//   NCCL_INIT_FAILS  n > 0: setting up fails as NCCL does in the n-th case of kInitFailures
//                    (fake_nccl.cc), on the last rank alone where that is possible
//   NCCL_VERSION     what ncclGetVersion says (22707)
int Setting(const std::string& name);

// Puts work onto a stream, in order.
void Enqueue(tfhvd::cuda::Stream stream, std::function<void()> work);

}  // namespace fake
