// Outbox: the coordinator's messages, at most one agreement for each rank. Nearly everything goes
// to all ranks, and is kept once for all ranks that get nothing else: with a thousand ranks, a
// thousand copies would take gigabytes.
//
// One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "cc/flow/messages.h"

namespace tfhvd {

// Several ranks may share one.
using SharedAgreement = std::shared_ptr<const Agreement>;

class Outbox {
 public:
  explicit Outbox(size_t ranks) : own_(ranks), confirm_(ranks, false) {}

  // Calls `change(Agreement*)` for the agreement of every rank.
  template <typename Change>
  void All(const Change& change) {
    change(&common_);
    for (const std::unique_ptr<Agreement>& own : own_) {
      if (own != nullptr) change(own.get());
    }
  }

  // Returns the agreement of one rank, separate from now on; it contains the changes of All.
  Agreement* Of(int rank);

  // Makes the rank answer at once.
  void Confirm(int rank) { confirm_[static_cast<size_t>(rank)] = true; }

  // Removes and returns everything, with this sequence number, as (rank, agreement).
  std::vector<std::pair<int, SharedAgreement>> Take(uint64_t sequence);

 private:
  Agreement common_;
  std::vector<std::unique_ptr<Agreement>> own_;  // by rank; null: the common agreement
  std::vector<bool> confirm_;                    // by rank
};

}  // namespace tfhvd
