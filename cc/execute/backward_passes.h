// BackwardPasses: completes the entries of a backward pass together, so that the framework's
// streams wait for the accelerator once a pass.
//
// Used by the engine's thread only.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/status.h"
#include "cc/device/device.h"
#include "cc/flow/entry.h"

namespace tfhvd {

class BackwardPasses {
 public:
  // Not owned; null: none, and each entry is completed at once.
  void SetAccelerator(Device* accelerator) { accelerator_ = accelerator; }

  // Completes the entry; if it belongs to a backward pass, together with the rest of that pass.
  void End(Entry entry, const Status& status, bool on_accelerator);
  // Completes the entries that wait for others of their pass.
  void ReleaseAll(const Status& status);
  // Returns whether any entry may wait for its backward pass.
  bool holds() const { return !held_.empty(); }

 private:
  // A backward pass of which only some entries have run: see EntryExtras.
  struct Pass {
    int32_t ended = 0;
    std::vector<Entry> on_accelerator;
  };

  void Release(std::vector<Entry>* entries, const Status& status);

  Device* accelerator_ = nullptr;                         // Not owned.
  std::map<std::pair<int32_t, std::string>, Pass> held_;  // by process set and name
};

}  // namespace tfhvd
