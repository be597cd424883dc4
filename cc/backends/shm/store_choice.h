// StoreChoice: whether a rank writes the blocks that others are to read through its caches, or past
// them to memory. Between cores with a cache in common the first is faster by a little. Between
// those of two sockets, or of two parts of a chip with caches of their own, it is several times
// slower: each line is fetched out of the other core's cache, one by one. Where a rank runs may
// change at any time: few jobs bind their ranks, and a virtual machine's processors move. So both
// are tried now and then, and what took less time is used.
//
// One is for blocks of one kind. In a trial some of about one size, in a row, are written one way
// and some the other way, on all ranks. What this rank then takes to write its own and to read the
// others' stands for what all take. Each rank chooses for itself, for what it writes.
//
// Pure: times are told. One thread.
#pragma once

#include <array>
#include <cstdint>

#include "cc/numeric/reduction.h"

namespace tfhvd {

class StoreChoice {
 public:
  struct Block {
    StoreIn stores = StoreIn::kCaches;
    bool counts = false;  // Took is to be told of it
  };

  // Smaller blocks go through the caches anyhow.
  static constexpr int64_t kLeastBytes = 8 << 10;

  // How the next block is to be written. REQUIRES: all ranks ask for blocks of the same sizes in
  // the same order; with all of them the same is done.
  Block Next(int64_t bytes);

  // How long this rank has written its part of a block that counts, and read the others', without
  // the time that it waited for them.
  void Took(StoreIn stores, int64_t bytes, double seconds);

  // As of the last trial.
  StoreIn choice() const { return choice_; }

 private:
  static constexpr int kWays = 2;
  // Blocks of a way in a trial; the first two find slots that were written the other way.
  static constexpr int kRun = 4;
  static constexpr int kUncounted = 2;
  // Blocks from one trial to the next: twice as many each time. In the end a trial costs a
  // hundredth where the other way takes four times as long.
  static constexpr int kShortestPause = 8;
  static constexpr int kLongestPause = 1024;
  // The better one of so many trials counts: what takes long may be the machine's doing.
  static constexpr int kKept = 2;

  // What is known of a way.
  struct Way {
    double seconds = 0.0;  // of this trial
    int64_t bytes = 0;
    std::array<double, kKept> costs = {};  // seconds a byte, of the trials
  };

  void Decide();
  double BestOf(const Way& way) const;

  StoreIn choice_ = StoreIn::kCaches;
  std::array<Way, kWays> ways_ = {};  // by StoreIn
  int pause_ = kShortestPause;        // after this trial
  int left_ = 0;                      // of the pause
  int at_ = 0;                        // in this trial
  int64_t first_bytes_ = 0;           // of it
  int counted_ = 0;                   // of it
  int trials_ = 0;
};

}  // namespace tfhvd
