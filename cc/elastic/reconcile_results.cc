#include "cc/elastic/reconcile_results.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "cc/comm/gather.h"

namespace tfhvd {
namespace {

Status GatherPositions(const Position& own, Communicator* everyone,
                       std::vector<Position>* positions) {
  std::vector<std::string> all;
  TFHVD_RETURN_IF_ERROR(GatherTexts(everyone, Encode(own), &all));
  for (const std::string& text : all) {
    TFHVD_RETURN_IF_ERROR(Decode(text, &positions->emplace_back()));
  }
  return Status::Ok();
}

}  // namespace

Status ReconcileResults(
    const Position& own, Communicator* everyone,
    const std::function<void(int64_t barriers)>& catch_up,
    const std::function<Status(const CollectiveSeq& seq, char* data)>& read,
    const std::function<void(const ResultRecord& record, const char* data)>& apply,
    const Failpoints& failpoints, Shared* shared) {
  std::vector<Position> positions;
  failpoints.Hit(Failpoint::kPositionsSending);
  TFHVD_RETURN_IF_ERROR(GatherPositions(own, everyone, &positions));
  failpoints.Hit(Failpoint::kPositionsShared);
  const auto some = [&positions](bool Position::* says) {
    return std::any_of(positions.begin(), positions.end(),
                       [says](const Position& position) { return position.*says; });
  };
  shared->some_are_new = some(&Position::is_new);
  shared->roll_back = some(&Position::by_commits) && some(&Position::lost_some);
  if (shared->roll_back) return Status::Ok();
  catch_up(CatchUp(&positions));
  const std::vector<Copy> copies = CopiesOf(positions);
  for (const Copy& copy : copies) {
    const std::vector<int64_t>& bytes = copy.record.bytes;
    const int64_t total = std::accumulate(bytes.begin(), bytes.end(), int64_t{0});
    std::vector<char> data(static_cast<size_t>(total));
    if (everyone->rank() == copy.root) {
      TFHVD_RETURN_IF_ERROR(read(copy.record.seq, data.data()));
      failpoints.Hit(Failpoint::kCopyFetched);
    }
    if (total > 0) TFHVD_RETURN_IF_ERROR(everyone->Broadcast(data.data(), total, copy.root));
    failpoints.Hit(Failpoint::kCopySent);
    apply(copy.record, data.data());
  }
  if (!copies.empty()) failpoints.Hit(Failpoint::kCopiesDone);
  shared->copied = static_cast<int64_t>(copies.size());
  return Status::Ok();
}

Status ShareCounts(const std::string& own, Communicator* everyone, std::string* counts) {
  std::vector<std::string> all;
  TFHVD_RETURN_IF_ERROR(GatherTexts(everyone, own, &all));
  const auto found =
      std::find_if(all.begin(), all.end(), [](const std::string& text) { return !text.empty(); });
  // All ranks that have counts have equal ones: they have just exchanged their records.
  *counts = found == all.end() ? "" : *found;
  return Status::Ok();
}

}  // namespace tfhvd
