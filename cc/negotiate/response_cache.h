// ResponseCache: what this rank knows by number. Ids are given, replaced and evicted by the
// coordinator's Agreements alone, so the ids of all ranks mean the same collectives.
//
// Used by the engine's thread only.
#pragma once

#include <string>
#include <unordered_map>

#include "cc/flow/messages.h"

namespace tfhvd {

class ResponseCache {
 public:
  struct Record {
    SharedRequest request;  // this rank's own
    Decision decision;      // of all ranks
  };

  // The id under which exactly this request was last agreed, or kNoId.
  CacheId Find(const SharedRequest& request);

  // The record of an id that is stored, else null.
  const Record* Get(CacheId id) const;

  // Stores or replaces. REQUIRES: id != kNoId.
  void Put(CacheId id, SharedRequest request, const Decision& decision);
  void Erase(CacheId id);

  size_t size() const { return records_.size(); }

 private:
  std::unordered_map<CacheId, Record> records_;
  std::unordered_map<Key, CacheId, KeyHash> ids_;
};

}  // namespace tfhvd
