// Sleeper: how the engine's thread sleeps while nothing is to be done, and what wakes it.
#pragma once

#include <chrono>

namespace tfhvd {

class Sleeper {
 public:
  virtual ~Sleeper() = default;

  // Sleeps until a message may have arrived, Wake was called, or `timeout`; may also return early.
  // A Wake since the last Wait ends it at once. `expecting`: a message is likely to come soon, so
  // that it is worth while to stay awake a little. The engine's thread.
  virtual void Wait(std::chrono::nanoseconds timeout, bool expecting) = 0;

  // Ends a Wait that is under way, or the next one. Any thread.
  virtual void Wake() = 0;

  // Whether, while the engine's thread is in Wait, another may run the engine, from BeginInline to
  // EndInline.
  virtual bool can_run_inline() const { return false; }
  // The caller looks at all that has come by now, in place of the thread in Wait. That one need not
  // be woken by what comes from here on.
  virtual void BeginInline() {}
  // What comes from here on ends a Wait again; and so does what has come since the last
  // BeginInline.
  virtual void EndInline() {}
};

}  // namespace tfhvd
