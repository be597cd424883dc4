// Gather: collects a value of each rank on all ranks. Collective over the communicator; one thread
// at a time, as for its other calls.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "cc/base/status.h"
#include "cc/comm/communicator.h"

namespace tfhvd {

// Sets all[r] to rank r's `own`.
template <typename T>
Status Gather(Communicator* communicator, const T& own, std::vector<T>* all) {
  static_assert(std::is_trivially_copyable<T>::value, "GatherTexts takes texts");
  const size_t size = static_cast<size_t>(communicator->size());
  all->resize(size);
  return communicator->AllGather(&own, all->data(), std::vector<int64_t>(size, sizeof(T)));
}

// Gathers texts of any lengths, in two calls.
Status GatherTexts(Communicator* communicator, const std::string& own,
                   std::vector<std::string>* all);

}  // namespace tfhvd
