// GatherChoice: whether a reduction is gathered (every rank gets the values of all ranks and
// reduces them) or goes in blocks. Gathered, the values cross the network once; in blocks, the
// values and then the results do, but with fewer bytes if there are more than two ranks. One
// crossing less is worth the bytes that the network carries in its time, which is measured once
// (GatheredReduce). All ranks must choose alike. Pure.
#pragma once

#include <cstdint>

namespace tfhvd {

// Up to so many ranks, all ranks send to all others at once: one step instead of log2(ranks).
constexpr int kFewRanks = 8;

// Returns whether the number of messages matters and not their size: the ranks send each other
// `total` bytes in all, and each of them at most `each`.
constexpr bool IsSmall(int64_t total, int64_t each) { return total <= 64 << 10 || each <= 1 << 10; }

class GatherChoice {
 public:
  enum class Answer { kGather, kBlocks, kMeasure };

  // The bytes sent to each other rank for the measurement.
  static constexpr int64_t kProbeBytes = 128 << 10;

  explicit GatherChoice(int ranks) : ranks_(ranks) {}

  // For `bytes` bytes of each rank. kMeasure: it depends on the network, which has not been
  // measured.
  Answer Of(int64_t bytes) const;

  // Returns how many bytes of a rank one crossing is worth: it took `way` seconds, and `probe`
  // seconds with kProbeBytes for each other rank.
  int64_t WorthOfAWay(double way, double probe) const;
  void SetWorth(int64_t bytes) { worth_ = bytes; }

 private:
  const int ranks_;
  int64_t worth_ = -1;  // -1: unknown
};

}  // namespace tfhvd
