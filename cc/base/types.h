// The enumerations that every layer shares. Their numbers travel on the wire: append, never
// reorder.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tfhvd {

enum class DType : uint8_t {
  kUInt8 = 0,
  kInt8 = 1,
  kInt32 = 2,
  kInt64 = 3,
  kFloat16 = 4,
  kBFloat16 = 5,
  kFloat32 = 6,
  kFloat64 = 7,
  kBool = 8,
  kInt16 = 9,
  kUInt16 = 10,
  kUInt32 = 11,
  kUInt64 = 12,
  // Complex numbers come last: a reduction works on their parts (PartType).
  kComplex64 = 13,
  kComplex128 = 14,
};
constexpr int kNumDTypes = 15;
constexpr int kNumRealDTypes = 13;

enum class ReduceOp : uint8_t { kAverage = 0, kSum = 1, kMin = 2, kMax = 3, kProduct = 4 };
constexpr int kNumReduceOps = 5;

enum class Collective : uint8_t {
  kAllReduce = 0,
  kAllGather = 1,
  kBroadcast = 2,
  kBarrier = 3,
  kReduceScatter = 4,
  kAllToAll = 5,
  // Agreements of the ranks that move no data:
  kJoin = 6,
  kAddProcessSet = 7,
  kRemoveProcessSet = 8,
  kAdasum = 9,
};
constexpr int kNumCollectives = 10;

enum class DeviceKind : uint8_t { kHost = 0, kGpu = 1 };
constexpr int kNumDeviceKinds = 2;

using Shape = std::vector<int64_t>;

int64_t ItemSize(DType dtype);  // bytes
bool IsFloat(DType dtype);      // a real floating-point type
bool IsComplex(DType dtype);
// Returns the type of each of the two parts of a complex number; any other type unchanged. Code
// that adds numbers, or scales them by real factors, works on these parts.
DType PartType(DType dtype);
const char* DTypeName(DType dtype);
const char* ReduceOpName(ReduceOp op);
const char* CollectiveName(Collective kind);
const char* DeviceKindName(DeviceKind kind);

int64_t NumElements(const Shape& shape);      // 1 for a scalar
std::string ShapeString(const Shape& shape);  // "[2, 3]"

// Returns "[0, 2, 5]", shortened after 16 ranks: for messages.
std::string RankList(const std::vector<int>& ranks);

// The first byte of a message that the job has failed (flow/messages.h, Alarm); control planes
// recognize it.
constexpr uint8_t kAlarmTag = 0xA3;

}  // namespace tfhvd
