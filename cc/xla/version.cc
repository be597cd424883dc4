#include "cc/xla/version.h"

#include "xla/ffi/api/ffi.h"

namespace xla::ffi {

// In libtensorflow_cc; xla/ffi/ffi_api.h declares it among much that TensorFlow's wheels lack.
const XLA_FFI_Api* GetXlaFfiApi();

}  // namespace xla::ffi

namespace tfhvd {

std::string WhyXlaDoesNotFit() {
  const XLA_FFI_Api_Version& found = xla::ffi::GetXlaFfiApi()->api_version;
  if (found.major_version == XLA_FFI_API_MAJOR && found.minor_version == XLA_FFI_API_MINOR) {
    return "";
  }
  return "tfhvd's collectives were compiled for another XLA than this TensorFlow has. Received: "
         "version " +
         std::to_string(found.major_version) + "." + std::to_string(found.minor_version) +
         " of its interface for foreign functions. Expected: " + std::to_string(XLA_FFI_API_MAJOR) +
         "." + std::to_string(XLA_FFI_API_MINOR) +
         ". Build tfhvd again with this TensorFlow, or use jit_compile=False.";
}

}  // namespace tfhvd
