// Sleeping in the kernel until a word in shared memory changes.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace tfhvd {

// Sleeps while the word holds `value`. True: woken, or it holds another value; callers look at it
// and wait again. False: all of `timeout` has passed. A signal that this thread handles meanwhile
// is neither: the rest of the time is waited for.
bool FutexWait(std::atomic<uint32_t>* word, uint32_t value, std::chrono::nanoseconds timeout);

void FutexWakeAll(std::atomic<uint32_t>* word);

}  // namespace tfhvd
