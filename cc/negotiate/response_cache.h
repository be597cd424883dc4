// ResponseCache: the requests and decisions that this rank knows by number. Only the coordinator's
// Agreements assign, replace and evict ids, so the ids of all ranks mean the same collectives.
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
    SharedRequest request;  // of this rank
    Decision decision;      // of all ranks
  };

  // Returns the id of the last agreement on exactly this request, or kNoId.
  CacheId Find(const SharedRequest& request);

  // Returns the record of a stored id, or null.
  const Record* Get(CacheId id) const;

  // Stores or replaces a record. REQUIRES: id != kNoId.
  void Put(CacheId id, SharedRequest request, const Decision& decision);
  void Erase(CacheId id);

  size_t size() const { return records_.size(); }

 private:
  std::unordered_map<CacheId, Record> records_;
  std::unordered_map<Key, CacheId, KeyHash> ids_;
};

}  // namespace tfhvd
