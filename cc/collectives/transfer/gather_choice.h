// GatherChoice: whether a reduction lets every rank get everybody's values and reduce them, or goes
// in blocks. Gathered, the values go one way across the network; in blocks they do, and then the
// results, but fewer bytes where there are more than two ranks. One way less is worth the bytes
// that the network carries in its time, which is measured once (GatheredReduce). All ranks
// must choose alike. Pure.
#pragma once

#include <cstdint>

namespace tfhvd {

// Up to so many ranks, everybody sends to everybody at once: one step instead of log2(ranks).
constexpr int kFewRanks = 8;

// Whether the number of messages counts, not their size, where ranks give each other `total` bytes
// in all and each of them at most `each`.
constexpr bool IsSmall(int64_t total, int64_t each) { return total <= 64 << 10 || each <= 1 << 10; }

class GatherChoice {
 public:
  enum class Answer { kGather, kBlocks, kMeasure };

  // What is sent to each other rank, to measure.
  static constexpr int64_t kProbeBytes = 128 << 10;

  explicit GatherChoice(int ranks) : ranks_(ranks) {}

  // For `bytes` bytes of each rank. kMeasure: it depends on the network, which is not known yet.
  Answer Of(int64_t bytes) const;

  // What one way is worth, in bytes that a rank sends: it took `way` seconds, and `probe` with
  // kProbeBytes for each other rank.
  int64_t WorthOfAWay(double way, double probe) const;
  void SetWorth(int64_t bytes) { worth_ = bytes; }

 private:
  const int ranks_;
  int64_t worth_ = -1;  // not known
};

}  // namespace tfhvd
