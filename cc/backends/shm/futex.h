// Futex: sleeping in the kernel until a word in shared memory changes.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace tfhvd {

// Sleeps while the word holds `value`. Returns true if it was woken or the word holds another
// value; callers then check the word and may wait again. Returns false if all of `timeout` has
// passed. If this thread handles a signal meanwhile, it waits for the rest of the time.
bool FutexWait(std::atomic<uint32_t>* word, uint32_t value, std::chrono::nanoseconds timeout);

void FutexWakeAll(std::atomic<uint32_t>* word);

}  // namespace tfhvd
