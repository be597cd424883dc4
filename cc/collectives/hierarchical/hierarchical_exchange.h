// HierarchicalExchange: the alltoall of ranks on several hosts, in two levels. A rank sends one
// message to every host, not to every rank.
//
// One thread: the communicator's.
#pragma once

#include <cstdint>
#include <vector>

#include "cc/base/status.h"
#include "cc/collectives/hierarchical/two_levels.h"

namespace tfhvd {

class HierarchicalExchange {
 public:
  // `levels` must outlive this object.
  explicit HierarchicalExchange(TwoLevels* levels) : levels_(levels) {}

  // See Communicator::AllToAll.
  Status AllToAll(const void* in, const std::vector<int64_t>& send_bytes, void* out,
                  const std::vector<int64_t>& recv_bytes);

 private:
  using Sizes = TwoLevels::Sizes;

  struct Traffic;
  Status LearnTraffic(const Sizes& send_bytes, const Sizes& recv_bytes, Traffic* traffic);
  Status HandToLanes(const char* in, const Sizes& send_bytes, const Traffic& traffic);
  Status ExchangeLanes(const Traffic& traffic);
  Status TakeFromLanes(const Traffic& traffic, char* out, const Sizes& recv_bytes);

  TwoLevels* const levels_;  // Not owned.
};

}  // namespace tfhvd
