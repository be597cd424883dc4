// EngineMetrics: counts of an engine's work since its start, which only grow. A value.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tfhvd {

// Why a locked step ended, as seen by this rank.
enum class UnlockReason {
  kTermOver,     // the ranks had agreed to negotiate again after so many rounds
  kOtherEntry,   // this rank's program called a collective outside the step
  kCancelled,    // this rank cancelled a call
  kNegotiation,  // this rank had other news, for instance that it leaves
  kBucketLate,   // a bucket of this rank did not fill for a long time
  kVotesLate,    // this rank was ready, and others were not for a long time
  kAnotherRank,  // another rank ended it, without a reason here
};
constexpr size_t kUnlockReasons = 7;

constexpr const char* UnlockReasonName(UnlockReason reason) {
  constexpr const char* kNames[kUnlockReasons] = {"term_over",   "other_collective", "cancelled",
                                                  "negotiation", "bucket_late",      "votes_late",
                                                  "another_rank"};
  return kNames[static_cast<size_t>(reason)];
}

struct EngineMetrics {
  int64_t submitted = 0;                           // collectives that this rank's program called
  int64_t completed = 0;                           // of these: ended without an error
  int64_t failed = 0;                              // of these: ended with an error
  int64_t tensors = 0;                             // of the collectives that all ranks agreed on
  int64_t bytes = 0;                               // inputs of these tensors on this rank
  int64_t calls = 0;                               // calls of communicators
  int64_t fused_tensors = 0;                       // tensors that shared their call with others
  int64_t rounds = 0;                              // agreements, by messages and by votes
  int64_t locked_rounds = 0;                       // of these, by votes: buckets of locked steps
  int64_t locked_steps = 0;                        // number of times that a step was locked
  std::array<int64_t, kUnlockReasons> unlocked{};  // by reason
  int64_t inline_runs = 0;                         // buckets that a submitting thread ran
  int64_t cache_hits = 0;                          // announced by number
  int64_t cache_misses = 0;                        // announced in full
  std::vector<double> waited;                      // seconds, by the rank that was ready last
  double waited_for_unknown = 0.0;                 // seconds, if the last rank is unknown here
};

}  // namespace tfhvd
