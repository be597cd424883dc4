#include "cc/negotiate/response_cache.h"

#include <utility>

namespace tfhvd {

CacheId ResponseCache::Find(const SharedRequest& request) {
  const auto id = ids_.find(request->key);
  if (id == ids_.end()) return kNoId;
  SharedRequest& agreed = records_.at(id->second).request;
  if (agreed.get() == request.get()) return id->second;
  if (!(*agreed == *request)) return kNoId;
  agreed = request;  // the object that most likely comes again
  return id->second;
}

const ResponseCache::Record* ResponseCache::Get(CacheId id) const {
  const auto record = records_.find(id);
  return record == records_.end() ? nullptr : &record->second;
}

void ResponseCache::Put(CacheId id, SharedRequest request, const Decision& decision) {
  ids_[request->key] = id;
  records_[id] = {std::move(request), decision};
}

void ResponseCache::Erase(CacheId id) {
  const auto record = records_.find(id);
  if (record == records_.end()) return;
  ids_.erase(record->second.request->key);
  records_.erase(record);
}

}  // namespace tfhvd
