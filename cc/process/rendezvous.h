// Rendezvous: finds out, without waiting, whether every rank of the job has reached one point of
// the program.
#pragma once

#include <memory>

#include "cc/flow/entry.h"

namespace tfhvd {

class Engine;

// Any thread. Ranks that have joined (hvd.join) do not count as present. If the other ranks never
// come, the destructor removes all traces of the rendezvous.
class Rendezvous {
 public:
  // Enters the next rendezvous of the process's engine; without an engine, it never completes.
  Rendezvous();

  // Leaves the rendezvous, unless it is complete.
  ~Rendezvous();

  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  // Returns whether every rank has entered it.
  bool IsComplete() const;

 private:
  struct State;
  const std::shared_ptr<State> state_;
  std::weak_ptr<Engine> engine_;
  EntryId entry_ = 0;
};

}  // namespace tfhvd
