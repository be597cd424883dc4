// The parts of NCCL that tfhvd uses, declared here so that the build needs no header of NVIDIA. The
// names, numbers and layouts are those of nccl.h; tests/gpu/abi_check.cc compares the two.
#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>

#include "cc/device/cuda_abi.h"

// A handle, under the tag that nccl.h gives it.
struct ncclComm;

namespace tfhvd {
namespace nccl {

using Result = int;    // ncclResult_t
using DataType = int;  // ncclDataType_t
using RedOp = int;     // ncclRedOp_t
using Comm = ncclComm*;

constexpr Result kSuccess = 0;
constexpr Result kUnhandledCudaError = 1;
constexpr Result kSystemError = 2;
constexpr Result kInternalError = 3;
constexpr Result kInvalidArgument = 4;
constexpr Result kInvalidUsage = 5;
constexpr Result kRemoteError = 6;
constexpr Result kInProgress = 7;

constexpr DataType kInt8 = 0;
constexpr DataType kUint8 = 1;
constexpr DataType kInt32 = 2;
constexpr DataType kUint32 = 3;
constexpr DataType kInt64 = 4;
constexpr DataType kUint64 = 5;
constexpr DataType kFloat16 = 6;
constexpr DataType kFloat32 = 7;
constexpr DataType kFloat64 = 8;
constexpr DataType kBfloat16 = 9;

constexpr RedOp kSum = 0;
constexpr RedOp kProd = 1;
constexpr RedOp kMax = 2;
constexpr RedOp kMin = 3;

constexpr int kScalarHostImmediate = 1;

struct UniqueId {
  char internal[128];
};

// ncclConfig_t of NCCL 2.17. Newer libraries copy the bytes that exist and set the rest according
// to `version`, so that one layout works for all of them.
struct Config {
  size_t size = 48;
  unsigned magic = 0xcafebeef;
  unsigned version = 21700;
  int blocking = INT_MIN;  // INT_MIN and null: NCCL chooses
  int cga_cluster_size = INT_MIN;
  int min_ctas = INT_MIN;
  int max_ctas = INT_MIN;
  const char* net_name = nullptr;
  int split_share = INT_MIN;
};
static_assert(sizeof(Config) == 48, "the layout of ncclConfig_t in NCCL 2.17");

}  // namespace nccl
}  // namespace tfhvd

// X(name, parameters...): every function of libnccl.so.2 that tfhvd calls and that returns a
// result.
#define TFHVD_NCCL_FUNCTIONS(X)                                                                   \
  X(ncclGetVersion, int*)                                                                         \
  X(ncclGetUniqueId, ::tfhvd::nccl::UniqueId*)                                                    \
  X(ncclCommInitRankConfig, ::tfhvd::nccl::Comm*, int, ::tfhvd::nccl::UniqueId, int,              \
    ::tfhvd::nccl::Config*)                                                                       \
  X(ncclCommFinalize, ::tfhvd::nccl::Comm)                                                        \
  X(ncclCommDestroy, ::tfhvd::nccl::Comm)                                                         \
  X(ncclCommAbort, ::tfhvd::nccl::Comm)                                                           \
  X(ncclCommGetAsyncError, ::tfhvd::nccl::Comm, ::tfhvd::nccl::Result*)                           \
  X(ncclAllReduce, const void*, void*, size_t, ::tfhvd::nccl::DataType, ::tfhvd::nccl::RedOp,     \
    ::tfhvd::nccl::Comm, ::tfhvd::cuda::Stream)                                                   \
  X(ncclReduce, const void*, void*, size_t, ::tfhvd::nccl::DataType, ::tfhvd::nccl::RedOp, int,   \
    ::tfhvd::nccl::Comm, ::tfhvd::cuda::Stream)                                                   \
  X(ncclReduceScatter, const void*, void*, size_t, ::tfhvd::nccl::DataType, ::tfhvd::nccl::RedOp, \
    ::tfhvd::nccl::Comm, ::tfhvd::cuda::Stream)                                                   \
  X(ncclAllGather, const void*, void*, size_t, ::tfhvd::nccl::DataType, ::tfhvd::nccl::Comm,      \
    ::tfhvd::cuda::Stream)                                                                        \
  X(ncclBroadcast, const void*, void*, size_t, ::tfhvd::nccl::DataType, int, ::tfhvd::nccl::Comm, \
    ::tfhvd::cuda::Stream)                                                                        \
  X(ncclSend, const void*, size_t, ::tfhvd::nccl::DataType, int, ::tfhvd::nccl::Comm,             \
    ::tfhvd::cuda::Stream)                                                                        \
  X(ncclRecv, void*, size_t, ::tfhvd::nccl::DataType, int, ::tfhvd::nccl::Comm,                   \
    ::tfhvd::cuda::Stream)                                                                        \
  X(ncclGroupStart)                                                                               \
  X(ncclGroupEnd)                                                                                 \
  X(ncclRedOpCreatePreMulSum, ::tfhvd::nccl::RedOp*, void*, ::tfhvd::nccl::DataType, int,         \
    ::tfhvd::nccl::Comm)                                                                          \
  X(ncclRedOpDestroy, ::tfhvd::nccl::RedOp, ::tfhvd::nccl::Comm)

// The functions that return a text.
#define TFHVD_NCCL_TEXTS(X)                    \
  X(ncclGetErrorString, ::tfhvd::nccl::Result) \
  X(ncclGetLastError, ::tfhvd::nccl::Comm)
