// Outbox: what the coordinator is to send, at most one agreement a rank. Nearly all of it goes to
// all ranks alike, and is kept once for all of those that are sent nothing else: with a thousand
// ranks, a thousand copies would take gigabytes.
//
// One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "cc/flow/messages.h"

namespace tfhvd {

// Those of several ranks may be one.
using SharedAgreement = std::shared_ptr<const Agreement>;

class Outbox {
 public:
  explicit Outbox(size_t ranks) : own_(ranks), confirm_(ranks, false) {}

  // Calls `change(Agreement*)` for what goes to all ranks.
  template <typename Change>
  void All(const Change& change) {
    change(&common_);
    for (const std::unique_ptr<Agreement>& own : own_) {
      if (own != nullptr) change(own.get());
    }
  }

  // What goes to one rank, from now on apart from the others'; what All has changed is in it.
  Agreement* Of(int rank);

  // The rank is to answer at once.
  void Confirm(int rank) { confirm_[static_cast<size_t>(rank)] = true; }

  // Hands out everything, with this sequence number, as (rank, agreement): nothing is left.
  std::vector<std::pair<int, SharedAgreement>> Take(uint64_t sequence);

 private:
  Agreement common_;
  std::vector<std::unique_ptr<Agreement>> own_;  // by rank; null: the common one
  std::vector<bool> confirm_;                    // by rank
};

}  // namespace tfhvd
