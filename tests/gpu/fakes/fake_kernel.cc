#include "tests/gpu/fakes/fake_kernel.h"

#include <string.h>  // as the compiler of the GPU has memcpy

#include "cc/numeric/half.h"

#define __global__
#define __device__
#define TFHVD_UNROLL
#define TFHVD_NO_UNROLL

namespace {

struct Index {
  unsigned x = 0;
};
thread_local Index blockIdx, threadIdx, blockDim;

}  // namespace

// What the compiler of the GPU has built in.
namespace tfhvd {
namespace kernel {

struct Half;
inline float ToFloat(Half x);
inline Half ToHalf(float x);
inline unsigned Bits(float x) { return BitsFromFloat(x); }
inline float FromBits(unsigned x) { return FloatFromBits(x); }

}  // namespace kernel
}  // namespace tfhvd

#include "cc/device/batched_copy.cu"

namespace tfhvd {
namespace kernel {

inline float ToFloat(Half x) { return ::tfhvd::ToFloat(Float16{x.bits}); }
inline Half ToHalf(float x) { return {::tfhvd::ToFloat16(x).bits}; }

}  // namespace kernel
}  // namespace tfhvd

namespace fake {

void RunBatchedCopy(const tfhvd::BatchedCopyArgs& args, unsigned blocks, unsigned threads) {
  blockDim = {threads};
  for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x) {
    for (threadIdx.x = 0; threadIdx.x < threads; ++threadIdx.x) tfhvd_batched_copy(args);
  }
}

}  // namespace fake
