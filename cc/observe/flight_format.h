// The flight record's memory, as other processes read it: a FlightHeader, then `slots` FlightSlots,
// then text. tfhvd/hang/flight_record.py reads it; kFlightVersion changes with any of this.
//
// Numbers are the machine's own; times are nanoseconds of CLOCK_MONOTONIC, which is one for all
// processes of a host.
#pragma once

#include <atomic>
#include <cstdint>

namespace tfhvd {

constexpr char kFlightMagic[8] = {'t', 'f', 'h', 'v', 'd', 'r', 'e', 'c'};
constexpr uint32_t kFlightVersion = 3;

struct FlightHeader {
  char magic[8];  // written last
  uint32_t version;
  uint32_t header_bytes;
  uint32_t slots;
  uint32_t slot_bytes;
  uint32_t text_bytes;
  int32_t rank;
  int32_t size;
  int32_t pid;
  int32_t leader;  // the lowest process number of the job's on this host; 0: not known
  uint32_t reserved;
  int64_t began;       // when the engine did
  int64_t began_unix;  // nanoseconds since 1970
  // Written by the threads that submit, and by the engine's: each in a line of the cache.
  alignas(64) std::atomic<uint64_t> submitted;  // entries so far; the last one's id
  std::atomic<int64_t> submitted_at;            // when the last one was; 0: none was
  std::atomic<int64_t> epoch;                   // of the training, counted from 1; 0: not known
  std::atomic<int64_t> step;                    // those that are done in it
  std::atomic<int64_t> tells_until;        // until when its own watch can say why the job hangs
  alignas(64) std::atomic<uint64_t> done;  // of these
  std::atomic<int64_t> done_at;
  alignas(64) char host[64];  // ends with a zero
};
static_assert(sizeof(FlightHeader) == 256, "the size of the header is part of the format");

enum class FlightState : uint8_t { kPending = 0, kOk = 1, kFailed = 2 };

// One entry: entry `id` is in slot id % slots until another one takes the slot.
struct FlightSlot {
  std::atomic<uint64_t> id;  // 0: none, or it is being written
  std::atomic<int64_t> submitted;
  std::atomic<int64_t> agreed;  // 0: not yet, as below
  std::atomic<int64_t> began;   // to be executed
  std::atomic<int64_t> ended;
  std::atomic<int64_t> bytes;   // of all its tensors on this rank
  std::atomic<uint32_t> name;   // where in the text: the key's name and, after its zero, the origin
  std::atomic<uint32_t> phase;  // the last phase that it was in; 0: none
  std::atomic<int32_t> waited_for;  // a rank; -1: none, or not known; -2: several
  std::atomic<uint16_t> tensors;
  std::atomic<uint8_t> kind;  // a Collective
  std::atomic<FlightState> state;
};
static_assert(sizeof(FlightSlot) == 64, "a slot is a line of the cache");

}  // namespace tfhvd
