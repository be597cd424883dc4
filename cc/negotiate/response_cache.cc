#include "cc/negotiate/response_cache.h"

namespace tfhvd {

CacheId ResponseCache::Find(const Request& request) const {
  const auto id = ids_.find(request.key);
  if (id == ids_.end()) return kNoId;
  return records_.at(id->second).request == request ? id->second : kNoId;
}

const ResponseCache::Record* ResponseCache::Get(CacheId id) const {
  const auto record = records_.find(id);
  return record == records_.end() ? nullptr : &record->second;
}

void ResponseCache::Put(CacheId id, const Request& request, const Decision& decision) {
  ids_[request.key] = id;
  records_[id] = {request, decision};
}

void ResponseCache::Erase(CacheId id) {
  const auto record = records_.find(id);
  if (record == records_.end()) return;
  ids_.erase(record->second.request.key);
  records_.erase(record);
}

}  // namespace tfhvd
