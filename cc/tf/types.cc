#include "cc/tf/types.h"

namespace tfhvd {

bool ToDType(tensorflow::DataType from, DType* to) {
  switch (from) {
    case tensorflow::DT_UINT8:
      *to = DType::kUInt8;
      return true;
    case tensorflow::DT_INT8:
      *to = DType::kInt8;
      return true;
    case tensorflow::DT_INT32:
      *to = DType::kInt32;
      return true;
    case tensorflow::DT_INT64:
      *to = DType::kInt64;
      return true;
    case tensorflow::DT_HALF:
      *to = DType::kFloat16;
      return true;
    case tensorflow::DT_BFLOAT16:
      *to = DType::kBFloat16;
      return true;
    case tensorflow::DT_FLOAT:
      *to = DType::kFloat32;
      return true;
    case tensorflow::DT_DOUBLE:
      *to = DType::kFloat64;
      return true;
    case tensorflow::DT_BOOL:
      *to = DType::kBool;
      return true;
    case tensorflow::DT_INT16:
      *to = DType::kInt16;
      return true;
    case tensorflow::DT_UINT16:
      *to = DType::kUInt16;
      return true;
    case tensorflow::DT_UINT32:
      *to = DType::kUInt32;
      return true;
    case tensorflow::DT_UINT64:
      *to = DType::kUInt64;
      return true;
    case tensorflow::DT_COMPLEX64:
      *to = DType::kComplex64;
      return true;
    case tensorflow::DT_COMPLEX128:
      *to = DType::kComplex128;
      return true;
    default:
      return false;
  }
}

Shape ToShape(const tensorflow::TensorShape& from) {
  Shape shape;
  shape.reserve(static_cast<size_t>(from.dims()));
  for (int i = 0; i < from.dims(); ++i) shape.push_back(from.dim_size(i));
  return shape;
}

}  // namespace tfhvd
