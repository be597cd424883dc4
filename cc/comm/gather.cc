#include "cc/comm/gather.h"

#include <numeric>

namespace tfhvd {

Status GatherTexts(Communicator* communicator, const std::string& own,
                   std::vector<std::string>* all) {
  std::vector<int64_t> lengths;
  TFHVD_RETURN_IF_ERROR(Gather(communicator, static_cast<int64_t>(own.size()), &lengths));
  const int64_t total = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  std::string joined(static_cast<size_t>(total), '\0');
  TFHVD_RETURN_IF_ERROR(communicator->AllGather(own.data(), joined.data(), lengths));
  size_t at = 0;
  for (const int64_t length : lengths) {
    all->push_back(joined.substr(at, static_cast<size_t>(length)));
    at += static_cast<size_t>(length);
  }
  return Status::Ok();
}

}  // namespace tfhvd
