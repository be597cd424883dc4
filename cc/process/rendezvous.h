// Rendezvous: finds out, without waiting, whether every rank of the job has come to one point of
// the program.
#pragma once

#include <memory>

#include "cc/flow/entry.h"

namespace tfhvd {

class Engine;

// Any thread. A rank that has joined is not there. Where the other ranks never come, nothing of it
// is left once the rendezvous is destroyed.
class Rendezvous {
 public:
  // Comes to the next rendezvous of the process's engine; without one nobody is ever there.
  Rendezvous();

  // Goes away again, if not every rank has come.
  ~Rendezvous();

  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  // Whether every rank has come.
  bool IsComplete() const;

 private:
  struct State;
  const std::shared_ptr<State> state_;
  std::weak_ptr<Engine> engine_;
  EntryId entry_ = 0;
};

}  // namespace tfhvd
