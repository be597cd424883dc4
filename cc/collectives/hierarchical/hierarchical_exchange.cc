#include "cc/collectives/hierarchical/hierarchical_exchange.h"

#include <numeric>

namespace tfhvd {
namespace {

int64_t Sum(const std::vector<int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
}

// Returns where each block begins, if they are one after the other.
std::vector<int64_t> Begins(const std::vector<int64_t>& sizes) {
  std::vector<int64_t> begins;
  int64_t at = 0;
  for (const int64_t n : sizes) {
    begins.push_back(at);
    at += n;
  }
  return begins;
}

}  // namespace

// The bytes that every rank of this host sends to and receives from every rank: [local rank][rank].
struct HierarchicalExchange::Traffic {
  std::vector<Sizes> sent;
  std::vector<Sizes> received;
};

// Three steps. The ranks of a host give each lane the blocks for that lane's ranks on any host; the
// lanes exchange these between hosts; a lane that serves several ranks of its host gives the others
// their blocks. So a rank sends one message to every host, not to every rank.
Status HierarchicalExchange::AllToAll(const void* in, const Sizes& send_bytes, void* out,
                                      const Sizes& recv_bytes) {
  levels_->BeginCall();
  Traffic traffic;
  TFHVD_RETURN_IF_ERROR(LearnTraffic(send_bytes, recv_bytes, &traffic));
  TFHVD_RETURN_IF_ERROR(HandToLanes(static_cast<const char*>(in), send_bytes, traffic));
  if (levels_->in_lane()) TFHVD_RETURN_IF_ERROR(ExchangeLanes(traffic));
  return TakeFromLanes(traffic, static_cast<char*>(out), recv_bytes);
}

Status HierarchicalExchange::LearnTraffic(const Sizes& send_bytes, const Sizes& recv_bytes,
                                          Traffic* traffic) {
  const size_t ranks = static_cast<size_t>(levels_->size());
  Sizes mine = send_bytes;
  mine.insert(mine.end(), recv_bytes.begin(), recv_bytes.end());
  Sizes all;
  const size_t locals = static_cast<size_t>(levels_->local()->size());
  all.resize(mine.size() * locals);
  const int64_t bytes = static_cast<int64_t>(mine.size() * sizeof(int64_t));
  TFHVD_RETURN_IF_ERROR(levels_->local()->AllGather(mine.data(), all.data(), Sizes(locals, bytes)));
  for (auto at = all.begin(); at != all.end(); at += static_cast<int64_t>(ranks)) {
    std::vector<Sizes>* const which =
        traffic->sent.size() == traffic->received.size() ? &traffic->sent : &traffic->received;
    which->emplace_back(at, at + static_cast<int64_t>(ranks));
  }
  return Status::Ok();
}

// Afterwards kPart holds the blocks for this lane, by sender of this host, receiving host and rank
// there.
Status HierarchicalExchange::HandToLanes(const char* in, const Sizes& send_bytes,
                                         const Traffic& traffic) {
  const Sizes begins = Begins(send_bytes);
  const size_t locals = static_cast<size_t>(levels_->local()->size());
  Sizes send(locals, 0);
  Sizes receive(locals, 0);
  char* const packed = levels_->Get(StagingBuffers::kPacked, Sum(send_bytes));
  char* to_pack = packed;
  for (int lane = 0; lane < levels_->layout().lanes; ++lane) {
    for (int h = 0; h < levels_->layout().hosts(); ++h) {
      for (const int to : levels_->layout().InLane(h, lane)) {
        const size_t r = static_cast<size_t>(to);
        TwoLevels::Pack(in + begins[r], send_bytes[r], &to_pack);
        send[static_cast<size_t>(lane)] += send_bytes[r];
        if (lane != levels_->local_rank()) continue;
        for (size_t l = 0; l < locals; ++l) receive[l] += traffic.sent[l][r];
      }
    }
  }
  char* const part = levels_->Get(StagingBuffers::kPart, Sum(receive));
  return levels_->local()->AllToAll(packed, send, part, receive);
}

// Each rank's blocks arrive by sending host and sender there: from kShare for a lane's rank, from
// that rank for others.
Status HierarchicalExchange::TakeFromLanes(const Traffic& traffic, char* out,
                                           const Sizes& recv_bytes) {
  const char* mine = levels_->Get(StagingBuffers::kShare, 0);
  if (levels_->crowded()) {
    Sizes send(static_cast<size_t>(levels_->local()->size()), 0);
    Sizes receive = send;
    const int64_t total = Sum(recv_bytes);
    const char* others = mine;
    if (levels_->in_lane()) {
      others += total;
      for (size_t l = static_cast<size_t>(levels_->local_rank() + levels_->layout().lanes);
           l < send.size(); l += static_cast<size_t>(levels_->layout().lanes)) {
        send[l] = Sum(traffic.received[l]);
      }
    } else {
      receive[static_cast<size_t>(levels_->layout().LaneOf(levels_->rank()))] = total;
    }
    char* const packed = levels_->Get(StagingBuffers::kPacked, levels_->in_lane() ? 0 : total);
    if (!levels_->in_lane()) mine = packed;
    TFHVD_RETURN_IF_ERROR(levels_->local()->AllToAll(others, send, packed, receive));
  }
  const Sizes begins = Begins(recv_bytes);
  for (const std::vector<int>& ranks : levels_->layout().ranks_of) {
    for (const int from : ranks) {
      const size_t r = static_cast<size_t>(from);
      TwoLevels::Copy(out + begins[r], mine, recv_bytes[r]);
      mine += recv_bytes[r];
    }
  }
  return Status::Ok();
}

// Afterwards kShare holds the blocks that arrived for this lane's ranks of this host: by rank,
// sending host and sender there.
Status HierarchicalExchange::ExchangeLanes(const Traffic& traffic) {
  const char* collected = levels_->Get(StagingBuffers::kPart, 0);
  const size_t locals = traffic.sent.size();
  const size_t hosts = static_cast<size_t>(levels_->layout().hosts());
  std::vector<std::vector<const char*>> begins(locals, std::vector<const char*>(hosts));
  std::vector<Sizes> bytes(locals, Sizes(hosts, 0));
  for (size_t l = 0; l < locals; ++l) {
    for (size_t h = 0; h < hosts; ++h) {
      begins[l][h] = collected;
      for (const int r : levels_->layout().InLane(static_cast<int>(h), levels_->local_rank())) {
        bytes[l][h] += traffic.sent[l][static_cast<size_t>(r)];
      }
      collected += bytes[l][h];
    }
  }
  Sizes send(hosts, 0);
  Sizes receive(hosts, 0);
  const std::vector<int> served = levels_->layout().InLane(levels_->host(), levels_->local_rank());
  const auto received = [&](int to, int from) {
    const size_t local = static_cast<size_t>(levels_->layout().local_of[static_cast<size_t>(to)]);
    return traffic.received[local][static_cast<size_t>(from)];
  };
  for (size_t h = 0; h < hosts; ++h) {
    for (size_t l = 0; l < locals; ++l) send[h] += bytes[l][h];
    for (const int from : levels_->layout().ranks_of[h]) {
      for (const int to : served) receive[h] += received(to, from);
    }
  }
  char* const packed = levels_->Get(StagingBuffers::kPacked, Sum(send));
  char* to_pack = packed;
  for (size_t h = 0; h < hosts; ++h) {
    for (size_t l = 0; l < locals; ++l) {
      TwoLevels::Pack(begins[l][h], bytes[l][h], &to_pack);
    }
  }
  char* const arrived = levels_->Get(StagingBuffers::kPart, Sum(receive));
  TFHVD_RETURN_IF_ERROR(levels_->across()->AllToAll(packed, send, arrived, receive));

  // The blocks arrived by host, sender there and rank here.
  char* sorted = levels_->Get(StagingBuffers::kShare, Sum(receive));
  for (const int rank : served) {
    const char* at = arrived;
    for (const std::vector<int>& ranks : levels_->layout().ranks_of) {
      for (const int from : ranks) {
        for (const int to : served) {
          const int64_t n = received(to, from);
          if (to == rank) TwoLevels::Pack(at, n, &sorted);
          at += n;
        }
      }
    }
  }
  return Status::Ok();
}

}  // namespace tfhvd
