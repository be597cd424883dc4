// Sleeper: how the engine's thread sleeps while it has nothing to do, and what wakes it.
#pragma once

#include <chrono>

namespace tfhvd {

class Sleeper {
 public:
  virtual ~Sleeper() = default;

  // Sleeps until a message may have arrived, Wake was called, or `timeout` has passed; may also
  // return early. A Wake since the last Wait ends it at once. `expecting`: a message is likely to
  // arrive soon, so that it is worth while to stay awake a little. The engine's thread.
  virtual void Wait(std::chrono::nanoseconds timeout, bool expecting) = 0;

  // Ends the present Wait, or the next one. Any thread.
  virtual void Wake() = 0;

  // Returns whether another thread may run the engine, from BeginInline to EndInline, while the
  // engine's thread is in Wait.
  virtual bool can_run_inline() const { return false; }
  // The caller handles everything that has arrived so far, instead of the thread in Wait. Later
  // arrivals need not wake that thread.
  virtual void BeginInline() {}
  // Later arrivals end a Wait again, and so do arrivals since the last BeginInline.
  virtual void EndInline() {}
};

}  // namespace tfhvd
