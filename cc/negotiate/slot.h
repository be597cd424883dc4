// Slot: the coordinator's state of one key: which ranks have announced it (written by tally.h), and
// the last agreement. Plain data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cc/flow/messages.h"
#include "cc/flow/process_set_table.h"

namespace tfhvd {

struct Slot {
  enum class Announced : uint8_t { kNot, kById, kInFull };

  Key key;
  ProcessSetTable::Members members;  // of its process set

  // The tally.
  int count = 0;
  std::vector<Announced> announced;  // by rank of the job
  // The different requests that were announced in full, and the index of each rank's request. The
  // indices are empty if there is only one request, as is usual.
  std::vector<Request> requests;
  std::vector<uint32_t> request_of;  // by rank, valid if announced in full
  double since = 0.0;
  double last = 0.0;          // the time of the last announcement
  double ready_here = 0.0;    // the time of the announcement of rank 0, which runs the coordinator
  bool tied = false;          // the last two came at one time: the last rank is unknown
  uint64_t known_before = 0;  // the last agreement that an announcing rank had seen
  bool joins = false;         // some rank announced that it joins
  bool complete = false;      // all needed ranks have announced it; it waits for its decision
  size_t index = 0;           // if complete: its index in the tally's list
  int waited_for = -1;        // if complete: the last rank; -1: none or unknown
  bool reported = false;

  // The last agreement; valid if id != kNoId.
  CacheId id = kNoId;
  Request request;  // of the first member
  Decision decision;
  uint64_t last_used = 0;
  uint64_t evicted_at = 0;      // the sequence number, or 0
  size_t evicted_index = 0;     // if evicted_at is not 0: its index in CacheIds
  Slot* idle_before = nullptr;  // Not owned; written by IdleSlots.
  Slot* idle_after = nullptr;   // Not owned; written by IdleSlots.
  bool idle = false;            // written by IdleSlots
};

inline bool HasAnnounced(const Slot& slot, int rank) {
  return slot.announced[static_cast<size_t>(rank)] != Slot::Announced::kNot;
}

// Returns the first rank that has announced the slot. REQUIRES: some rank has.
int FirstAnnounced(const Slot& slot);

// Keeps the request that `rank` announces in full. Earlier requests of the slot may move in memory.
void KeepRequest(Slot* slot, int rank, Request request);

// Returns the request that `rank` has announced in full. REQUIRES: it has done so.
const Request& RequestInFull(const Slot& slot, int rank);

// Returns the request of `rank`. REQUIRES: it has announced the slot.
Request RequestOf(const Slot& slot, int rank);

// Returns "allreduce 'x' has waited 61 s: submitted by ranks [1], not by ranks [0, 2] (first on
// host a)". `joined`, by rank: ranks that are not missing.
std::string WaitingText(const Slot& slot, double now, const std::vector<std::string>& hosts,
                        const std::vector<bool>& joined);

std::string SecondsText(double seconds);  // "1.5 s"

}  // namespace tfhvd
