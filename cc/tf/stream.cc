#include "cc/tf/stream.h"

#include "tensorflow/core/framework/device_base.h"
#include "xla/stream_executor/stream.h"

namespace tfhvd {

// Calls virtual functions only, so that nothing that TensorFlow builds with CUDA is linked.
void* StreamOf(tensorflow::OpKernelContext* ctx) {
  tensorflow::DeviceContext* const device = ctx->op_device_context();
  if (device == nullptr || device->stream() == nullptr) return nullptr;
  return device->stream()->platform_specific_handle().stream;
}

}  // namespace tfhvd
