#include "cc/backends/nccl/nccl_errors.h"

#include <algorithm>
#include <cctype>

namespace tfhvd {
namespace {

struct Cause {
  const char* words;  // in lower case
  const char* advice;
};

constexpr char kUpdateDriver[] =
    "The GPU's driver is older than NCCL's CUDA runtime. Update the driver, or install an NCCL for "
    "an older CUDA.";
constexpr char kUnreachable[] =
    "The hosts cannot reach each other on the network that NCCL has chosen. Set NCCL_SOCKET_IFNAME "
    "to the interface that joins them (`ip -brief address` lists them), and check the firewall.";
constexpr char kPeerEnded[] = "Another rank has ended; its own output says why.";

// Texts of NCCL 2.27.7, and of the system's errors that it passes on. The first match counts.
constexpr Cause kCauses[] = {
    {"duplicate gpu",
     "Two ranks use the same GPU. Give each its own: start at most as many ranks on a host as it "
     "has GPUs, and let tfhvd or tf.config.set_visible_devices(gpus[hvd.local_rank()], 'GPU') "
     "choose."},
    {"/dev/shm",
     "Shared memory is too small or missing, as in containers by default. Start the container with "
     "--shm-size=1g or more, or --ipc=host; or set NCCL_SHM_DISABLE=1 to do without it."},
    {"no space left on device",
     "Shared memory is full. Start the container with --shm-size=1g or more, or --ipc=host; or set "
     "NCCL_SHM_DISABLE=1 to do without it."},
    {"driver version is insufficient", kUpdateDriver},
    {"insufficient driver", kUpdateDriver},
    {"interface found",
     "NCCL found no network interface. Set NCCL_SOCKET_IFNAME to the one that joins the hosts "
     "(`ip -brief address` lists them)."},
    {"connection refused", kUnreachable},
    {"no route to host", kUnreachable},
    {"connection timed out", kUnreachable},
    {"out of memory",
     "The GPU has no memory left for NCCL. Let TensorFlow leave some: "
     "TF_FORCE_GPU_ALLOW_GROWTH=true, or tf.config.experimental.set_memory_growth."},
    {"remote process exited", kPeerEnded},
    {"connection closed by remote peer", kPeerEnded},
};

}  // namespace

std::string NcclLikelyCause(const std::string& words) {
  std::string lower = words;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  for (const Cause& cause : kCauses) {
    if (lower.find(cause.words) != std::string::npos) return cause.advice;
  }
  return "";
}

Status NcclFailed(const NcclApi& api, const char* call, nccl::Result result, nccl::Comm comm) {
  const std::string name = std::string(call).substr(0, std::string(call).find('('));
  const char* const text = api.ncclGetErrorString(result);
  const char* const last = api.ncclGetLastError(comm);
  std::string message =
      name + " failed: " + (text != nullptr ? text : std::to_string(result)) + ".";
  if (last != nullptr && *last != '\0') message += " NCCL says: " + std::string(last) + ".";
  std::string advice = NcclLikelyCause(message);
  if (advice.empty()) advice = "With NCCL_DEBUG=INFO, NCCL prints more.";
  message += " " + advice;
  return {result == nccl::kRemoteError ? StatusCode::kAborted : StatusCode::kInternal, message};
}

}  // namespace tfhvd
