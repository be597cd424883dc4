#include "cc/negotiate/slot.h"

#include <algorithm>
#include <cstdio>

#include "cc/negotiate/agree.h"

namespace tfhvd {
namespace {

// How many requests are compared with a new one. Those of an allgather may all differ.
constexpr size_t kMostAlike = 8;

}  // namespace

int FirstAnnounced(const Slot& slot) {
  int rank = 0;
  while (!HasAnnounced(slot, rank)) ++rank;
  return rank;
}

void KeepRequest(Slot* slot, int rank, Request request) {
  std::vector<Request>& kept = slot->requests;
  const auto looked_at = kept.begin() + static_cast<ptrdiff_t>(std::min(kMostAlike, kept.size()));
  auto same = std::find(kept.begin(), looked_at, request);
  if (same == looked_at) {
    kept.push_back(std::move(request));
    same = kept.end() - 1;
  }
  if (kept.size() == 1) return;
  slot->request_of.resize(slot->announced.size(), 0);
  slot->request_of[static_cast<size_t>(rank)] = static_cast<uint32_t>(same - kept.begin());
}

const Request& RequestInFull(const Slot& slot, int rank) {
  if (slot.request_of.empty()) return slot.requests[0];
  return slot.requests[slot.request_of[static_cast<size_t>(rank)]];
}

Request RequestOf(const Slot& slot, int rank) {
  if (slot.announced[rank] == Slot::Announced::kInFull) return RequestInFull(slot, rank);
  Request request = slot.request;
  const auto found = std::lower_bound(slot.members->begin(), slot.members->end(), rank);
  const size_t index = static_cast<size_t>(found - slot.members->begin());
  for (size_t t = 0; t < slot.decision.first_dims.size(); ++t) {
    request.tensors[t].shape[0] = slot.decision.first_dims[t][index];
  }
  if (!slot.decision.weights.empty()) request.weight = slot.decision.weights[index];
  return request;
}

std::string SecondsText(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, seconds < 10 ? "%.1f s" : "%.0f s", seconds);
  return text;
}

std::string WaitingText(const Slot& slot, double now, const std::vector<std::string>& hosts,
                        const std::vector<bool>& joined) {
  std::vector<int> here;
  std::vector<int> missing;
  for (int r : *slot.members) {
    if (HasAnnounced(slot, r)) {
      here.push_back(r);
    } else if (!joined[r]) {
      missing.push_back(r);
    }
  }
  std::string text = Describe(RequestOf(slot, here[0])) + " has waited " +
                     SecondsText(now - slot.since) + ": submitted by ranks " + RankList(here);
  if (missing.empty()) return text;
  return text + ", not by ranks " + RankList(missing) + " (first on host " + hosts[missing[0]] +
         ")";
}

}  // namespace tfhvd
