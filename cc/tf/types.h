// Conversions of TensorFlow's types and shapes to the core's.
#pragma once

#include "cc/base/types.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "tensorflow/core/framework/types.pb.h"

// The types that every op takes, for REGISTER_OP: those of DType, in TensorFlow's spelling.
#define TFHVD_OP_TYPES                                                               \
  "{uint8, int8, int32, int64, half, bfloat16, float, double, bool, int16, uint16, " \
  "uint32, uint64, complex64, complex128}"

namespace tfhvd {

// Returns false if the core has no such type.
bool ToDType(tensorflow::DataType from, DType* to);

Shape ToShape(const tensorflow::TensorShape& from);

}  // namespace tfhvd
