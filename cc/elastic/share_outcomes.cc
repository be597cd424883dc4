#include "cc/elastic/share_outcomes.h"

#include <numeric>
#include <string>

namespace tfhvd {
namespace {

Status GatherPositions(const Position& own, Communicator* everyone,
                       std::vector<Position>* positions) {
  const auto size = static_cast<size_t>(everyone->size());
  const std::string mine = Encode(own);
  const int64_t length = static_cast<int64_t>(mine.size());
  std::vector<int64_t> lengths(size);
  TFHVD_RETURN_IF_ERROR(
      everyone->AllGather(&length, lengths.data(), std::vector<int64_t>(size, sizeof length)));
  std::string all(static_cast<size_t>(std::accumulate(lengths.begin(), lengths.end(), int64_t{0})),
                  '\0');
  TFHVD_RETURN_IF_ERROR(everyone->AllGather(mine.data(), &all[0], lengths));
  size_t at = 0;
  for (const int64_t part : lengths) {
    TFHVD_RETURN_IF_ERROR(
        Decode(all.substr(at, static_cast<size_t>(part)), &positions->emplace_back()));
    at += static_cast<size_t>(part);
  }
  return Status::Ok();
}

}  // namespace

Status ShareOutcomes(const Position& own, Communicator* everyone,
                     const std::function<Status(const Turn& turn, char* data)>& fetch,
                     const std::function<void(const Outcome& outcome, const char* data)>& take,
                     int64_t* copied) {
  std::vector<Position> positions;
  TFHVD_RETURN_IF_ERROR(GatherPositions(own, everyone, &positions));
  const std::vector<Copy> copies = CopiesOf(positions);
  for (const Copy& copy : copies) {
    const std::vector<int64_t>& bytes = copy.outcome.bytes;
    const int64_t total = std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
    std::vector<char> data(static_cast<size_t>(total));
    if (everyone->rank() == copy.root) {
      TFHVD_RETURN_IF_ERROR(fetch(copy.outcome.turn, data.data()));
    }
    if (total > 0) TFHVD_RETURN_IF_ERROR(everyone->Broadcast(data.data(), total, copy.root));
    take(copy.outcome, data.data());
  }
  *copied = static_cast<int64_t>(copies.size());
  return Status::Ok();
}

}  // namespace tfhvd
