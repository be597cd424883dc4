// ErrorEpoch: the time from a decision with an error until every rank that it concerns has
// confirmed it. Nothing else is decided meanwhile: a framework cancels the rest of a failed step,
// and its tensors must not be paired with those of the next one. Part of the coordinator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tfhvd {

class ErrorEpoch {
 public:
  // `size`: the number of ranks.
  explicit ErrorEpoch(int size) : concerned_(static_cast<size_t>(size), false) {}

  // Begins the epoch at `now`: the agreement `sequence` holds an error. Concerns: the error
  // concerns `rank`; more ranks may follow.
  void Begin(uint64_t sequence, double now) {
    sequence_ = sequence;
    since_ = now;
    reported_ = false;
  }
  void Concerns(int rank) { concerned_[static_cast<size_t>(rank)] = true; }

  // Returns the agreement that began the epoch; 0: there is none.
  uint64_t sequence() const { return sequence_; }
  double since() const { return since_; }

  // Returns the concerned ranks that have neither confirmed the error nor left; empty: the epoch is
  // over. `seen`: by rank, the last agreement that it has confirmed.
  std::vector<int> Missing(const std::vector<uint64_t>& seen, const std::vector<bool>& left);

  // Returns whether to report the epoch, once: it has lasted for `limit`.
  bool Report(double now, double limit) {
    if (reported_ || now - since_ < limit) return false;
    return reported_ = true;
  }

 private:
  uint64_t sequence_ = 0;
  double since_ = 0.0;
  bool reported_ = false;
  std::vector<bool> concerned_;  // by rank
};

}  // namespace tfhvd
