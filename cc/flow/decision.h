// Decision: what the coordinator says of one collective once every rank has asked for it, or of one
// that can never happen. Plain data; travels in Agreements, whose order is the order of execution
// on every rank.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cc/base/status.h"
#include "cc/flow/request.h"

namespace tfhvd {

// What first_dims says of a rank that has joined, and so brings no rows.
constexpr int64_t kJoined = -1;

struct Decision {
  Key key;
  Status verdict;  // not ok: the collective fails with this on every rank
  // allgather and alltoall: first_dims[tensor][rank of the set] as announced, or kJoined; empty
  // otherwise.
  std::vector<std::vector<int64_t>> first_dims;

  // An allreduce by Average: the weights by rank of the set; empty where all weigh the same.
  std::vector<int64_t> weights;

  // A rank that has joined, and so takes no part, asks the others to stop.
  bool stopping = false;

  // A rank that takes part asks all to stop, and no rank is absent: who stops after the step that
  // has this collective stops where all do.
  bool stop_requested = false;

  // join: the rank that came last. add_process_set, remove_process_set: the set's number.
  int64_t number = 0;

  // How many rows of a tensor each rank brings.
  std::vector<int64_t> RowsOfRanks(size_t tensor) const {
    std::vector<int64_t> rows = first_dims[tensor];
    std::replace(rows.begin(), rows.end(), kJoined, int64_t{0});
    return rows;
  }

  bool operator==(const Decision& o) const {
    return key == o.key && verdict == o.verdict && first_dims == o.first_dims &&
           weights == o.weights && stopping == o.stopping && stop_requested == o.stop_requested &&
           number == o.number;
  }
};

}  // namespace tfhvd
