// Backend: makes communicators for the memory of an accelerator, out of host communicators. Each
// vendor's collectives implement it.
//
// Used by the engine's thread only.
#pragma once

#include <memory>

#include "cc/base/status.h"
#include "cc/comm/communicator.h"

namespace tfhvd {

class Backend {
 public:
  virtual ~Backend() = default;

  virtual const char* name() const = 0;

  // Opens a communicator over the ranks of `host`, which must outlive it. Collective; fails on
  // every rank or on none.
  virtual Status Open(Communicator* host, std::unique_ptr<Communicator>* out) = 0;
};

}  // namespace tfhvd
