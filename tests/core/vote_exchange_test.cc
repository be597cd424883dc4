// How hosts learn what all have voted: in any order of votes and messages every host comes to the
// same verdict in every round, an abort reaches those who have not voted, and a round costs each
// host one message to each of a few others, or one a hop.
#include "cc/collectives/hierarchical/vote_exchange.h"

#include <deque>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "tests/core/testing.h"

namespace tfhvd {
namespace testing {
namespace {

using Random = std::mt19937;

int Below(Random* random, int n) {
  return static_cast<int>((*random)() % static_cast<uint32_t>(n));
}

// Leaders whose messages arrive in order from each to each, some time after they were sent.
class Leaders {
 public:
  Leaders(int hosts, uint32_t seed) : random(seed), lines_(static_cast<size_t>(hosts * hosts)) {
    for (int h = 0; h < hosts; ++h) exchanges.push_back(std::make_unique<VoteExchange>(h, hosts));
  }
  int hosts() const { return static_cast<int>(exchanges.size()); }

  // Whether the host's round is decided now.
  bool Advance(int host, Vote own) {
    std::vector<VoteExchange::VoteMessage> messages;
    const bool decided = exchanges[static_cast<size_t>(host)]->Advance(own, &messages);
    for (const VoteExchange::VoteMessage& message : messages) {
      lines_[static_cast<size_t>(host * hosts() + message.to)].push_back(message);
      ++sent;
    }
    return decided;
  }

  // Delivers one message of a line chosen at random, if it has one.
  void Deliver() {
    const size_t line = static_cast<size_t>(Below(&random, static_cast<int>(lines_.size())));
    if (lines_[line].empty()) return;
    const VoteExchange::VoteMessage message = lines_[line].front();
    lines_[line].pop_front();
    exchanges[static_cast<size_t>(message.to)]->Receive(message.peer, message.word);
  }

  Random random;
  std::vector<std::unique_ptr<VoteExchange>> exchanges;
  int64_t sent = 0;

 private:
  std::vector<std::deque<VoteExchange::VoteMessage>> lines_;  // by sender and receiver
};

TEST(VotesJoinInAnyOrder) {
  const Vote all[] = {Vote::kNone,   Vote::kAbortRequested,
                      Vote::kCommit, Vote::kCommitAbortRequested,
                      Vote::kAbort,  Vote::kAbortLate};
  for (const Vote a : all) {
    EXPECT_TRUE(Join(a, a) == a);
    EXPECT_TRUE(Join(Vote::kCommit, a) == a);
    for (const Vote b : all) {
      EXPECT_TRUE(Join(a, b) == Join(b, a));
      for (const Vote c : all) EXPECT_TRUE(Join(a, Join(b, c)) == Join(Join(a, b), c));
    }
  }
  EXPECT_TRUE(Join(Vote::kNone, Vote::kCommitAbortRequested) == Vote::kAbortRequested);
  EXPECT_TRUE(Join(Vote::kNone, Vote::kAbort) == Vote::kAbort);
  EXPECT_TRUE(VoteIn(VoteWord(7, Vote::kAbort), 6) == Vote::kCommit);
  EXPECT_TRUE(VoteIn(VoteWord(7, Vote::kAbort), 7) == Vote::kAbort);
  EXPECT_TRUE(VoteIn(VoteWord(7, Vote::kAbort), 8) == Vote::kNone);
}

// Each host votes when it likes, and a round in which one votes abort is aborted for all, whatever
// the others have said.
TEST(AllHostsComeToOneVerdict) {
  for (const int hosts : {1, 2, 3, 4, 5, 6, 7, 8, 13, 16, 33}) {
    Leaders leaders(hosts, static_cast<uint32_t>(hosts));
    for (int turn = 1; turn <= 25; ++turn) {
      const int aborter = Below(&leaders.random, 3) == 0 ? Below(&leaders.random, hosts) : -1;
      std::vector<bool> voted(static_cast<size_t>(hosts), false);
      std::vector<bool> decided(static_cast<size_t>(hosts), false);
      int left = hosts;
      for (int64_t i = 0; left > 0 && i < 2000000; ++i) {
        leaders.Deliver();
        const int h = Below(&leaders.random, hosts);
        const auto at = static_cast<size_t>(h);
        if (decided[at]) continue;
        const uint64_t known = leaders.exchanges[at]->elsewhere();
        if (Below(&leaders.random, 5) == 0) voted[at] = true;
        const Vote own = !voted[at] ? Vote::kNone : h == aborter ? Vote::kAbort : Vote::kCommit;
        if (!leaders.Advance(h, own)) continue;
        decided[at] = true;
        --left;
        const bool end = IsAbort(own) || IsAbort(VoteIn(known, static_cast<uint64_t>(turn)));
        EXPECT_EQ(end, aborter >= 0);
      }
      EXPECT_EQ(left, 0);
    }
  }
}

// Who has voted asks the others, which have not: all of them hear it, and who answers ends it.
TEST(AQuestionAndAnEndReachThoseWhoHaveNotVoted) {
  for (const int hosts : {2, 3, 6, 8, 11}) {
    for (int asker = 0; asker < hosts; ++asker) {
      Leaders leaders(hosts, 5);
      const auto settle = [&](int aborter) {
        for (int i = 0; i < 200 * hosts * hosts; ++i) {
          leaders.Deliver();
          const int h = i % hosts;
          if (leaders.exchanges[static_cast<size_t>(h)]->round() > 1) continue;
          leaders.Advance(h, h == aborter ? Vote::kAbort
                             : h == asker ? Vote::kCommitAbortRequested
                                          : Vote::kNone);
        }
      };
      settle(-1);
      for (int h = 0; h < hosts; ++h) {
        if (h == asker) continue;
        const uint64_t known = leaders.exchanges[static_cast<size_t>(h)]->elsewhere();
        EXPECT_TRUE(RequestsAbort(VoteIn(known, 1)));
      }
      settle((asker + hosts / 2) % hosts);
      for (const auto& exchange : leaders.exchanges) EXPECT_EQ(exchange->round(), uint64_t{2});
    }
  }
}

TEST(ARoundCostsAMessageAPeer) {
  for (const int hosts : {1, 2, 3, 8, 9, 64}) {
    Leaders leaders(hosts, 1);
    const int peers = leaders.exchanges[0]->peers();
    if (hosts <= 8) {
      EXPECT_EQ(peers, hosts - 1);
    } else {
      EXPECT_TRUE(1 << peers >= hosts && 1 << peers < 2 * hosts);
    }
    int decided = 0;
    std::vector<bool> over(static_cast<size_t>(hosts), false);
    for (int64_t i = 0; decided < hosts && i < 5000000; ++i) {
      const auto h = static_cast<size_t>(i % hosts);
      leaders.Deliver();
      if (over[h] || !leaders.Advance(static_cast<int>(h), Vote::kCommit)) continue;
      over[h] = true;
      ++decided;
    }
    EXPECT_EQ(decided, hosts);
    EXPECT_EQ(leaders.sent, int64_t{hosts} * peers);
  }
}

// The network is crossed once: what all have sent before anybody has heard of anybody decides.
TEST(FewHostsDecideInOneWay) {
  for (int hosts = 2; hosts <= 8; ++hosts) {
    std::vector<VoteExchange> exchanges;
    std::vector<VoteExchange::VoteMessage> messages;
    for (int h = 0; h < hosts; ++h) {
      exchanges.emplace_back(h, hosts);
      EXPECT_FALSE(exchanges.back().Advance(Vote::kCommit, &messages));
    }
    for (const VoteExchange::VoteMessage& message : messages) {
      exchanges[static_cast<size_t>(message.to)].Receive(message.peer, message.word);
    }
    for (VoteExchange& exchange : exchanges) {
      messages.clear();
      EXPECT_TRUE(exchange.Advance(Vote::kCommit, &messages));
      EXPECT_TRUE(messages.empty());
    }
  }
}

TEST(TheHostBeforeIsKnownToBeMissing) {
  VoteExchange exchange(0, 5);
  EXPECT_EQ(exchange.HostWithoutVote(), 4);
  exchange.Receive(0, VoteWord(1, Vote::kAbortRequested));
  EXPECT_EQ(exchange.HostWithoutVote(), 4);
  exchange.Receive(0, VoteWord(1, Vote::kCommit));
  EXPECT_EQ(exchange.HostWithoutVote(), -1);
  EXPECT_EQ(VoteExchange(0, 1).HostWithoutVote(), -1);
}

}  // namespace
}  // namespace testing
}  // namespace tfhvd

TEST_MAIN()
