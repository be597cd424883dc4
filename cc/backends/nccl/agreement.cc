#include "cc/backends/nccl/agreement.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "cc/comm/gather.h"

namespace tfhvd {
namespace {

// A status as a message: long enough for a text, short enough to be gathered from many ranks.
struct Word {
  int32_t code = 0;
  char text[1020] = {0};
};

struct Gpu {
  cuda::Uuid uuid = {};
  char text[128] = {0};
};

template <typename T>
void SetText(T* to, const std::string& text) {
  const size_t n = std::min(text.size(), sizeof to->text - 1);
  std::memcpy(to->text, text.data(), n);
}

}  // namespace

Status AgreeOnStatus(Communicator* host, const Status& mine) {
  Word word;
  word.code = static_cast<int32_t>(mine.code());
  SetText(&word, mine.message());
  std::vector<Word> all;
  TFHVD_RETURN_IF_ERROR(Gather(host, word, &all));
  size_t chosen = all.size();
  for (size_t r = all.size(); r-- > 0;) {
    if (all[r].code == 0) continue;
    const bool follows = all[r].code == static_cast<int32_t>(StatusCode::kAborted);
    if (chosen == all.size() || !follows || all[chosen].code == all[r].code) chosen = r;
  }
  if (chosen == all.size()) return Status::Ok();
  const std::string where = all.size() > 1 ? "rank " + std::to_string(chosen) + ": " : "";
  return {static_cast<StatusCode>(all[chosen].code), where + all[chosen].text};
}

Status CheckEachHasItsGpu(Communicator* host, const CudaDevice& device) {
  Gpu gpu;
  std::string description;
  TFHVD_RETURN_IF_ERROR(AgreeOnStatus(host, device.Identify(&gpu.uuid, &description)));
  SetText(&gpu, description);
  std::vector<Gpu> all;
  TFHVD_RETURN_IF_ERROR(Gather(host, gpu, &all));
  for (size_t b = 1; b < all.size(); ++b) {
    for (size_t a = 0; a < b; ++a) {
      if (std::memcmp(&all[a].uuid, &all[b].uuid, sizeof all[a].uuid) != 0) continue;
      return Status::FailedPrecondition(
          "ranks " + std::to_string(a) + " and " + std::to_string(b) +
          " use the same GPU. Received: " + all[a].text + " on both. Expected: one GPU a rank. " +
          "Call hvd.init() before the first tensor, so that tfhvd can choose, or "
          "tf.config.set_visible_devices(gpus[hvd.local_rank()], 'GPU'), and start no more ranks "
          "on a host than it has GPUs. If they are to share it: TFHVD_GPU_OPERATIONS=host, or "
          "TFHVD_SHARED_GPU=1 where NCCL is set up for it.");
    }
  }
  return Status::Ok();
}

}  // namespace tfhvd
