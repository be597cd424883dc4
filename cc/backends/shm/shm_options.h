// ShmOptions: how a communicator through shared memory works.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "cc/backends/shm/slot_writer.h"
#include "cc/base/failpoints.h"
#include "cc/base/log.h"

namespace tfhvd {

struct ShmOptions {
  // Two slots for each rank and exchange fit into a core's cache and still keep the memory bus
  // busy.
  int64_t slot_bytes = 256 << 10;
  // For a reduction in one exchange: values stay in the near cache of the writing core until the
  // other rank reads them.
  int64_t block_bytes = 128 << 10;
  // How to write the values for others; nullopt: as StoreChoice finds out.
  std::optional<StoreIn> stores;
  // An allreduce's result of at least so many bytes, not written over the input, bypasses the
  // caches: from this size on that is not slower even if the result is read at once, and in a step
  // other results come first.
  int64_t result_past_caches = 1 << 20;
  Log log;
  Failpoints failpoints;
  std::vector<int> job_ranks;  // the ranks' numbers in the job, for messages; empty: the same
};

}  // namespace tfhvd
