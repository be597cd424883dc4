// The parts of CUDA's driver API that tfhvd uses, declared here so that the build needs no header
// of NVIDIA. The names and numbers are those of cuda.h, where they are equal in CUDA 12 and 13;
// tests/gpu/abi_check.cc compares the two.
#pragma once

#include <cstddef>
#include <cstdint>

// Handles, under the tags that cuda.h gives them.
struct CUctx_st;
struct CUevent_st;
struct CUfunc_st;
struct CUmod_st;
struct CUstream_st;

namespace tfhvd {
namespace cuda {

using Result = int;  // CUresult
using Context = CUctx_st*;
using Event = CUevent_st*;
using Function = CUfunc_st*;
using Module = CUmod_st*;
using Stream = CUstream_st*;
using Pointer = unsigned long long;  // CUdeviceptr

struct Uuid {
  char bytes[16];
};

constexpr Result kSuccess = 0;
constexpr Result kInvalidValue = 1;
constexpr Result kOutOfMemory = 2;
constexpr Result kNotInitialized = 3;
constexpr Result kNoDevice = 100;
constexpr Result kInvalidContext = 201;
constexpr Result kNoBinaryForGpu = 209;
constexpr Result kNotFound = 500;
constexpr Result kNotReady = 600;
constexpr unsigned kStreamNonBlocking = 1;
constexpr unsigned kEventDisableTiming = 2;
constexpr int kPointerDeviceOrdinal = 9;  // CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL

}  // namespace cuda
}  // namespace tfhvd

// X(name, parameters...): every function of libcuda.so.1 that tfhvd calls.
#define TFHVD_CUDA_FUNCTIONS(X)                                                                \
  X(cuInit, unsigned)                                                                          \
  X(cuDriverGetVersion, int*)                                                                  \
  X(cuGetErrorName, ::tfhvd::cuda::Result, const char**)                                       \
  X(cuGetErrorString, ::tfhvd::cuda::Result, const char**)                                     \
  X(cuDeviceGetCount, int*)                                                                    \
  X(cuDeviceGet, int*, int)                                                                    \
  X(cuDeviceGetName, char*, int, int)                                                          \
  X(cuDeviceGetUuid_v2, ::tfhvd::cuda::Uuid*, int)                                             \
  X(cuDevicePrimaryCtxRetain, ::tfhvd::cuda::Context*, int)                                    \
  X(cuCtxPushCurrent_v2, ::tfhvd::cuda::Context)                                               \
  X(cuCtxPopCurrent_v2, ::tfhvd::cuda::Context*)                                               \
  X(cuCtxGetDevice, int*)                                                                      \
  X(cuCtxGetStreamPriorityRange, int*, int*)                                                   \
  X(cuStreamCreateWithPriority, ::tfhvd::cuda::Stream*, unsigned, int)                         \
  X(cuStreamDestroy_v2, ::tfhvd::cuda::Stream)                                                 \
  X(cuStreamGetCtx, ::tfhvd::cuda::Stream, ::tfhvd::cuda::Context*)                            \
  X(cuStreamWaitEvent, ::tfhvd::cuda::Stream, ::tfhvd::cuda::Event, unsigned)                  \
  X(cuEventCreate, ::tfhvd::cuda::Event*, unsigned)                                            \
  X(cuEventRecord, ::tfhvd::cuda::Event, ::tfhvd::cuda::Stream)                                \
  X(cuEventQuery, ::tfhvd::cuda::Event)                                                        \
  X(cuEventDestroy_v2, ::tfhvd::cuda::Event)                                                   \
  X(cuMemAlloc_v2, ::tfhvd::cuda::Pointer*, size_t)                                            \
  X(cuMemFree_v2, ::tfhvd::cuda::Pointer)                                                      \
  X(cuMemsetD8Async, ::tfhvd::cuda::Pointer, unsigned char, size_t, ::tfhvd::cuda::Stream)     \
  X(cuMemcpyDtoDAsync_v2, ::tfhvd::cuda::Pointer, ::tfhvd::cuda::Pointer, size_t,              \
    ::tfhvd::cuda::Stream)                                                                     \
  X(cuMemcpyDtoHAsync_v2, void*, ::tfhvd::cuda::Pointer, size_t, ::tfhvd::cuda::Stream)        \
  X(cuMemcpyHtoDAsync_v2, ::tfhvd::cuda::Pointer, const void*, size_t, ::tfhvd::cuda::Stream)  \
  X(cuPointerGetAttribute, void*, int, ::tfhvd::cuda::Pointer)                                 \
  X(cuModuleLoadData, ::tfhvd::cuda::Module*, const void*)                                     \
  X(cuModuleUnload, ::tfhvd::cuda::Module)                                                     \
  X(cuModuleGetFunction, ::tfhvd::cuda::Function*, ::tfhvd::cuda::Module, const char*)         \
  X(cuLaunchKernel, ::tfhvd::cuda::Function, unsigned, unsigned, unsigned, unsigned, unsigned, \
    unsigned, unsigned, ::tfhvd::cuda::Stream, void**, void**)
