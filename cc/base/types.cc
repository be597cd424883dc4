#include "cc/base/types.h"

namespace tfhvd {

int64_t ItemSize(DType dtype) {
  switch (dtype) {
    case DType::kUInt8:
    case DType::kInt8:
    case DType::kBool:
      return 1;
    case DType::kInt16:
    case DType::kUInt16:
    case DType::kFloat16:
    case DType::kBFloat16:
      return 2;
    case DType::kInt32:
    case DType::kUInt32:
    case DType::kFloat32:
      return 4;
    case DType::kInt64:
    case DType::kUInt64:
    case DType::kFloat64:
    case DType::kComplex64:
      return 8;
    case DType::kComplex128:
      return 16;
  }
  return 0;
}

bool IsFloat(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kBFloat16 || dtype == DType::kFloat32 ||
         dtype == DType::kFloat64;
}

bool IsComplex(DType dtype) { return dtype == DType::kComplex64 || dtype == DType::kComplex128; }

DType PartType(DType dtype) {
  if (dtype == DType::kComplex64) return DType::kFloat32;
  if (dtype == DType::kComplex128) return DType::kFloat64;
  return dtype;
}

const char* DTypeName(DType dtype) {
  static const char* const kNames[kNumDTypes] = {
      "uint8", "int8",  "int32",  "int64",  "float16", "bfloat16",  "float32",   "float64",
      "bool",  "int16", "uint16", "uint32", "uint64",  "complex64", "complex128"};
  return kNames[static_cast<int>(dtype)];
}

const char* ReduceOpName(ReduceOp op) {
  static const char* const kNames[kNumReduceOps] = {"Average", "Sum", "Min", "Max", "Product"};
  return kNames[static_cast<int>(op)];
}

const char* CollectiveName(Collective kind) {
  static const char* const kNames[kNumCollectives] = {
      "allreduce",          "allgather",       "broadcast", "barrier",
      "reducescatter",      "alltoall",        "join",      "add_process_set",
      "remove_process_set", "Adasum allreduce"};
  return kNames[static_cast<int>(kind)];
}

const char* DeviceKindName(DeviceKind kind) { return kind == DeviceKind::kHost ? "CPU" : "GPU"; }

int64_t NumElements(const Shape& shape) {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  return n;
}

std::string ShapeString(const Shape& shape) {
  std::string s = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) s += ", ";
    s += std::to_string(shape[i]);
  }
  return s + "]";
}

std::string RankList(const std::vector<int>& ranks) {
  constexpr size_t kMost = 16;
  std::string s = "[";
  for (size_t i = 0; i < ranks.size() && i < kMost; ++i) {
    if (i > 0) s += ", ";
    s += std::to_string(ranks[i]);
  }
  if (ranks.size() > kMost) s += ", ... " + std::to_string(ranks.size()) + " ranks in all";
  return s + "]";
}

}  // namespace tfhvd
