// The exchange of records in a new generation. Each member sends the collectives that it waits for
// and the results that it has. A result that one rank has and another waits for is sent to all
// ranks. A new rank receives the counts.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cc/base/failpoints.h"
#include "cc/base/status.h"
#include "cc/comm/communicator.h"
#include "cc/elastic/ledger.h"

namespace tfhvd {

// The result of the exchange, equal on all ranks.
struct Shared {
  int64_t copied = 0;         // number of copied records
  bool some_are_new = false;  // a member was not in the job before
  bool roll_back = false;     // all ranks return to their last commit, and nothing is copied
};

// Collective over all members. First calls `catch_up` with the greatest number of barriers that any
// rank has passed. `read` writes the bytes of a record of this rank to `data`. `apply` receives
// every record that is sent, even if this rank does not wait for it. If the status is not ok,
// another rank has failed; the records that `apply` received are valid nevertheless.
Status ReconcileResults(
    const Position& own, Communicator* everyone,
    const std::function<void(int64_t barriers)>& catch_up,
    const std::function<Status(const CollectiveSeq& seq, char* data)>& read,
    const std::function<void(const ResultRecord& record, const char* data)>& apply,
    const Failpoints& failpoints, Shared* shared);

// Collective over all members. `own`: the counts of this rank; "" if it is new. `counts`: the
// counts of the ranks that are not new; "" if all are new.
Status ShareCounts(const std::string& own, Communicator* everyone, std::string* counts);

}  // namespace tfhvd
