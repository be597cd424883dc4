// Our declarations of CUDA's driver API and of NCCL against NVIDIA's headers: compiled only where
// there are some, by tests/gpu/test_abi.py. That it compiles is the test.
#include <cuda.h>
#include <nccl.h>

#include <type_traits>

#include "cc/backends/nccl/nccl_api.h"
#include "cc/device/cuda_driver.h"

namespace {

// Alike to a caller: the same size, and both pointers, or both numbers, or both structures.
template <typename A, typename B>
constexpr bool Alike() {
  return sizeof(A) == sizeof(B) && std::is_pointer<A>::value == std::is_pointer<B>::value &&
         std::is_class<A>::value == std::is_class<B>::value;
}

template <typename Ours, typename Theirs>
struct SameCall : std::false_type {};
template <typename R1, typename... A1, typename R2, typename... A2>
struct SameCall<R1 (*)(A1...), R2 (*)(A2...)> {
  static constexpr bool Check() {
    if constexpr (sizeof...(A1) != sizeof...(A2)) {
      return false;
    } else {
      return Alike<R1, R2>() && (Alike<A1, A2>() && ...);
    }
  }
  static constexpr bool value = Check();
};

#define TFHVD_CHECK(name, ...) \
  static_assert(SameCall<decltype(Table::name), decltype(&::name)>::value, #name);
using Table = tfhvd::CudaDriver;
TFHVD_CUDA_FUNCTIONS(TFHVD_CHECK)
}  // namespace

namespace nccl_functions {
using Table = tfhvd::NcclApi;
TFHVD_NCCL_FUNCTIONS(TFHVD_CHECK)
TFHVD_NCCL_TEXTS(TFHVD_CHECK)
}  // namespace nccl_functions

namespace cuda = tfhvd::cuda;
namespace nccl = tfhvd::nccl;

static_assert(std::is_same<cuda::Stream, CUstream>::value);
static_assert(std::is_same<cuda::Event, CUevent>::value);
static_assert(std::is_same<cuda::Pointer, CUdeviceptr>::value);
static_assert(std::is_same<nccl::Comm, ncclComm_t>::value);
static_assert(cuda::kInvalidValue == CUDA_ERROR_INVALID_VALUE);
static_assert(cuda::kOutOfMemory == CUDA_ERROR_OUT_OF_MEMORY);
static_assert(cuda::kNotInitialized == CUDA_ERROR_NOT_INITIALIZED);
static_assert(cuda::kNoDevice == CUDA_ERROR_NO_DEVICE);
static_assert(cuda::kNoBinaryForGpu == CUDA_ERROR_NO_BINARY_FOR_GPU);
static_assert(cuda::kNotFound == CUDA_ERROR_NOT_FOUND);
static_assert(cuda::kNotReady == CUDA_ERROR_NOT_READY);
static_assert(cuda::kStreamNonBlocking == CU_STREAM_NON_BLOCKING);
static_assert(cuda::kEventDisableTiming == CU_EVENT_DISABLE_TIMING);
static_assert(cuda::kPointerDeviceOrdinal == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);

static_assert(nccl::kUnhandledCudaError == ncclUnhandledCudaError);
static_assert(nccl::kSystemError == ncclSystemError);
static_assert(nccl::kInternalError == ncclInternalError);
static_assert(nccl::kInvalidArgument == ncclInvalidArgument);
static_assert(nccl::kInvalidUsage == ncclInvalidUsage);
static_assert(nccl::kRemoteError == ncclRemoteError);
static_assert(nccl::kInProgress == ncclInProgress);
static_assert(nccl::kInt8 == ncclInt8 && nccl::kUint8 == ncclUint8);
static_assert(nccl::kInt32 == ncclInt32 && nccl::kInt64 == ncclInt64);
static_assert(nccl::kUint32 == ncclUint32 && nccl::kUint64 == ncclUint64);
static_assert(nccl::kFloat16 == ncclFloat16 && nccl::kFloat32 == ncclFloat32);
static_assert(nccl::kFloat64 == ncclFloat64 && nccl::kBfloat16 == ncclBfloat16);
static_assert(nccl::kSum == ncclSum && nccl::kProd == ncclProd);
static_assert(nccl::kMax == ncclMax && nccl::kMin == ncclMin);
static_assert(nccl::kScalarHostImmediate == ncclScalarHostImmediate);
static_assert(sizeof(nccl::UniqueId) == sizeof(ncclUniqueId));
// A newer layout only appends.
static_assert(sizeof(nccl::Config) <= sizeof(ncclConfig_t));
static_assert(offsetof(nccl::Config, blocking) == offsetof(ncclConfig_t, blocking));
static_assert(offsetof(nccl::Config, max_ctas) == offsetof(ncclConfig_t, maxCTAs));
static_assert(offsetof(nccl::Config, net_name) == offsetof(ncclConfig_t, netName));
static_assert(offsetof(nccl::Config, split_share) == offsetof(ncclConfig_t, splitShare));
