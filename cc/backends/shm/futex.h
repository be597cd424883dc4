// Sleeping in the kernel until a word in shared memory changes.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace tfhvd {

// Sleeps while the word holds `value`; returns when woken or after `timeout`, and may return early.
// False: after the timeout.
bool FutexWait(std::atomic<uint32_t>* word, uint32_t value, std::chrono::nanoseconds timeout);

void FutexWakeAll(std::atomic<uint32_t>* word);

}  // namespace tfhvd
