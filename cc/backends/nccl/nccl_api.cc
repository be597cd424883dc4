#include "cc/backends/nccl/nccl_api.h"

#include <dlfcn.h>

namespace tfhvd {
namespace {

constexpr char kAdvice[] = " Type: pip install nvidia-nccl-cu12";

template <typename Function>
Status Find(void* library, const std::string& file, const char* name, Function** function) {
  *function = reinterpret_cast<Function*>(dlsym(library, name));
  if (*function != nullptr) return Status::Ok();
  return Status::Unavailable(file + " has no " + name + ": it is older than NCCL 2.14.3." +
                             kAdvice);
}

// Uses TensorFlow's NCCL if it is loaded: two copies in a process would both take memory of the
// GPU.
void* Open(const std::string& library, const std::string& installed) {
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  const bool usual_name = library.find('/') == std::string::npos;
  if (handle == nullptr && usual_name && !installed.empty()) {
    handle = dlopen(installed.c_str(), RTLD_NOW | RTLD_LOCAL);
  }
  return handle != nullptr ? handle : dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
}

}  // namespace

std::string NcclApi::Version() const {
  int version = 0;
  if (ncclGetVersion(&version) != nccl::kSuccess) return "unknown";
  return std::to_string(version / 10000) + "." + std::to_string(version % 10000 / 100) + "." +
         std::to_string(version % 100);
}

Status LoadNccl(const std::string& library, const std::string& installed, NcclApi* out) {
  if (library.empty()) return Status::Unavailable("switched off by TFHVD_NCCL_LIBRARY");
  void* const handle = Open(library, installed);
  if (handle == nullptr) {
    const char* const why = dlerror();
    return Status::Unavailable("no NCCL: " + std::string(why != nullptr ? why : library) + "." +
                               kAdvice);
  }
  NcclApi api;
#define TFHVD_FIND(name, ...) TFHVD_RETURN_IF_ERROR(Find(handle, library, #name, &api.name));
  TFHVD_NCCL_FUNCTIONS(TFHVD_FIND)
  TFHVD_NCCL_TEXTS(TFHVD_FIND)
#undef TFHVD_FIND
  *out = api;
  return Status::Ok();
}

}  // namespace tfhvd
