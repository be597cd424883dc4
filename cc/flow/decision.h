// Decision: the coordinator's verdict on one collective, once every rank has asked for it or it can
// no longer complete. Plain data; travels in Agreements, whose order is the order of execution on
// every rank.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cc/base/status.h"
#include "cc/flow/request.h"

namespace tfhvd {

// The value in first_dims for a rank that has joined and so contributes no rows.
constexpr int64_t kJoined = -1;

struct Decision {
  Key key;
  Status verdict;  // not ok: the collective fails with this on every rank
  // allgather and alltoall: first_dims[tensor][rank of the set] as announced, or kJoined; otherwise
  // empty.
  std::vector<std::vector<int64_t>> first_dims;

  // An allreduce by Average: the weights by rank of the set; empty if all are equal.
  std::vector<int64_t> weights;

  // A rank that has joined (hvd.join), and so does not participate, asks the others to stop.
  bool stopping = false;

  // A participating rank asks all to stop, and no rank is absent: a program that stops after the
  // step of this collective stops at the same step on all ranks.
  bool stop_requested = false;

  // join: the rank that joined last. add_process_set, remove_process_set: the set's number.
  int64_t number = 0;

  // Returns how many rows of a tensor each rank contributes.
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
