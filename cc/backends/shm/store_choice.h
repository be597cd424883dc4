// StoreChoice: whether a rank writes blocks for others through its caches, or past them to memory.
// Between cores with a common cache, the first is slightly faster. Between cores of two sockets, or
// of two parts of a chip with separate caches, it is several times slower: each line is fetched out
// of the other core's cache, one by one. A rank may move at any time: few jobs bind their ranks,
// and a virtual machine's processors move. Therefore both ways are tried now and then, and the
// faster one is used.
//
// An object is for blocks of one kind. In a trial, some consecutive blocks of about one size are
// written one way and some the other way, on all ranks. The time that this rank takes to write its
// blocks and to read the others' represents the time of all ranks. Each rank chooses for its own
// writes.
//
// Pure: times are arguments. One thread.
#pragma once

#include <array>
#include <cstdint>

#include "cc/numeric/reduction.h"

namespace tfhvd {

class StoreChoice {
 public:
  struct Block {
    StoreIn stores = StoreIn::kCaches;
    bool counts = false;  // call Took for this block
  };

  // Smaller blocks always go through the caches.
  static constexpr int64_t kLeastBytes = 8 << 10;

  // Returns how to write the next block. REQUIRES: all ranks call it for blocks of the same sizes
  // in the same order; all treat the blocks in the same way.
  Block Next(int64_t bytes);

  // Records how long this rank has written its part of a block that counts, and read the others',
  // without the time of waiting for them.
  void Took(StoreIn stores, int64_t bytes, double seconds);

  // The choice of the last trial.
  StoreIn choice() const { return choice_; }

 private:
  static constexpr int kWays = 2;
  // Blocks of a way in a trial; the first two do not count, because their slots were written the
  // other way.
  static constexpr int kRun = 4;
  static constexpr int kUncounted = 2;
  // Blocks from one trial to the next: the number doubles each time. In the end a trial costs one
  // percent if the other way takes four times as long.
  static constexpr int kShortestPause = 8;
  static constexpr int kLongestPause = 1024;
  // The best of so many trials counts, because a long time may have other causes on the machine.
  static constexpr int kKept = 2;

  // The measurements of a way.
  struct Way {
    double seconds = 0.0;  // of this trial
    int64_t bytes = 0;
    std::array<double, kKept> costs = {};  // seconds per byte, of the trials
  };

  void Decide();
  double BestOf(const Way& way) const;

  StoreIn choice_ = StoreIn::kCaches;
  std::array<Way, kWays> ways_ = {};  // by StoreIn
  int pause_ = kShortestPause;        // after this trial
  int left_ = 0;                      // of the pause
  int at_ = 0;                        // in this trial
  int64_t first_bytes_ = 0;           // of the first block of this trial
  int counted_ = 0;                   // counted blocks of this trial
  int trials_ = 0;
};

}  // namespace tfhvd
