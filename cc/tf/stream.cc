#include "cc/tf/stream.h"

#include "tensorflow/core/framework/device_base.h"
#include "xla/stream_executor/stream.h"

namespace tfhvd {

// Virtual functions only: nothing of TensorFlow's that is built with CUDA is linked to.
void* StreamOf(tensorflow::OpKernelContext* ctx) {
  tensorflow::DeviceContext* const device = ctx->op_device_context();
  if (device == nullptr || device->stream() == nullptr) return nullptr;
  return device->stream()->platform_specific_handle().stream;
}

}  // namespace tfhvd
