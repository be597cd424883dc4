// The control plane in two levels: in order, whole, never stuck, one message a host. Ranks are
// threads; shared memory joins those of a host, the in-process mail, which nothing waits for, the
// hosts.
#include "cc/collectives/hierarchical/hierarchical_control_plane.h"

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cc/backends/shm/shm_control_plane.h"
#include "tests/core/numbered_messages.h"
#include "tests/core/on_ranks.h"
#include "tests/core/testing.h"

namespace tfhvd {
namespace testing {
namespace {

using Hosts = std::vector<int>;  // the host of each rank
using std::chrono::hours;

// Counts what goes from one host to another. As with MPI, nothing that arrives ends a Wait.
class Counted : public ControlPlane {
 public:
  Counted(std::unique_ptr<ControlPlane> plane, std::atomic<int>* sent)
      : plane_(std::move(plane)), sent_(sent) {}
  int rank() const override { return plane_->rank(); }
  int size() const override { return plane_->size(); }
  Status Send(int to, std::string bytes) override {
    ++*sent_;
    return plane_->Send(to, std::move(bytes));
  }
  Status Receive(std::optional<Message>* message) override { return plane_->Receive(message); }
  bool Flushed() override { return plane_->Flushed(); }
  void Wait(std::chrono::nanoseconds, bool) override { EXPECT_TRUE(false); }
  void Wake() override {}

 private:
  const std::unique_ptr<ControlPlane> plane_;
  std::atomic<int>* const sent_;  // Not owned.
};

// Runs `body(plane)` on every rank; returns how many messages went between hosts.
template <typename Body>
int OnPlanes(const Hosts& hosts, const Body& body,
             std::chrono::nanoseconds flush_limit = HierarchicalControlPlane::kFlushLimit) {
  std::atomic<int> sent{0};
  OnWorlds(static_cast<int>(hosts.size()), [&](World* world) {
    const int rank = world->rank();
    const HostLayout layout = MakeHostLayout(hosts);
    const size_t host = static_cast<size_t>(layout.host_of[static_cast<size_t>(rank)]);
    std::unique_ptr<Communicator> local, everyone;
    ASSERT_OK(world->OpenCommunicator(AllOf(world->size()), &everyone));
    ASSERT_OK(world->OpenCommunicator(layout.ranks_of[host], &local));
    std::unique_ptr<ControlPlane> within, across;
    ASSERT_OK(MakeShmControlPlane(local.get(), &within));
    ASSERT_OK(world->OpenControlPlane(&across));
    HierarchicalControlPlane plane(layout, rank, std::move(within),
                                   std::make_unique<Counted>(std::move(across), &sent),
                                   flush_limit);
    EXPECT_EQ(plane.rank(), rank);
    EXPECT_EQ(plane.size(), static_cast<int>(hosts.size()));
    body(&plane);
    // A leader passes on what its host's ranks still send or wait for.
    std::atomic<bool> over{false};
    std::thread barrier([&] {
      EXPECT_OK(everyone->Barrier());
      over = true;
      plane.Wake();
    });
    while (!over) {
      std::optional<Message> none;
      EXPECT_OK(plane.Receive(&none));
      EXPECT_FALSE(none.has_value());
      (void)plane.Flushed();
      if (!over) plane.Wait(std::chrono::milliseconds(5), true);
    }
    barrier.join();
  });
  return sent;
}

const std::vector<Hosts>& AllHosts() {
  static const std::vector<Hosts> all = {{0, 0, 1, 1}, {0, 0, 0, 1}, {0, 1, 1, 1},
                                         {0, 1, 0, 1}, {0, 1, 2},    {0, 1, 1, 2, 0, 2, 2}};
  return all;
}

TEST(MessagesOfAllLengthsArriveInOrder) {
  constexpr int kEach = 40;
  for (const Hosts& hosts : AllHosts()) {
    (void)OnPlanes(hosts, [](ControlPlane* plane) {
      const int rank = plane->rank();
      std::vector<int> peers = {0};
      if (rank == 0) {
        peers = AllOf(plane->size());
        peers.erase(peers.begin());
      }
      for (int i = 0; i < kEach; ++i) {
        for (const int to : peers) EXPECT_OK(plane->Send(to, Letter(rank, to, i)));
      }
      std::vector<int> next(static_cast<size_t>(plane->size()), 0);
      for (size_t i = 0; i < kEach * peers.size(); ++i) {
        const Message message = Await(plane, i % 2 == 0);
        int& n = next[static_cast<size_t>(message.from)];
        EXPECT_TRUE(message.bytes == Letter(message.from, rank, n));
        ++n;
      }
    });
  }
}

TEST(QuestionsAreAnsweredAgainAndAgain) {
  constexpr int kRounds = 300;
  for (const Hosts& hosts : AllHosts()) {
    (void)OnPlanes(hosts, [](ControlPlane* plane) {
      for (int i = 0; i < kRounds; ++i) {
        if (plane->rank() != 0) {
          EXPECT_OK(plane->Send(0, std::to_string(2 * i)));
          EXPECT_EQ(Await(plane, true).bytes, std::to_string(i));
          continue;
        }
        for (int r = 1; r < plane->size(); ++r) {
          EXPECT_EQ(Await(plane, true).bytes, std::to_string(2 * i));
        }
        for (int r = 1; r < plane->size(); ++r) EXPECT_OK(plane->Send(r, std::to_string(i)));
        Flush(plane);
      }
    });
  }
}

// Each of 3 hosts of 3 ranks gets one message and sends one, however many ranks have something.
TEST(OneMessageAHost) {
  const int sent = OnPlanes({0, 0, 0, 1, 1, 1, 2, 2, 2}, [](ControlPlane* plane) {
    if (plane->rank() != 0) {
      EXPECT_EQ(Await(plane, true).bytes, std::string("agreed"));
      return;
    }
    for (int r = 1; r < plane->size(); ++r) EXPECT_OK(plane->Send(r, "agreed"));
    Flush(plane);
  });
  EXPECT_EQ(sent, 2);
}

// A leader that hears of an agreement may go into a collective: the others have it by then, though
// the leader makes no further call. However long that takes, as nothing limits it here.
TEST(ALeaderHearsLast) {
  std::atomic<bool> other_heard{false};
  const std::string longer(200000, 'x');  // than shared memory holds between two ranks
  const auto body = [&](ControlPlane* plane) {
    if (plane->rank() == 0) {
      for (int r = 1; r < 3; ++r) EXPECT_OK(plane->Send(r, longer));
      Flush(plane);
      return;
    }
    EXPECT_TRUE(Await(plane, true).bytes == longer);
    if (plane->rank() == 2) {
      other_heard = true;
      return;
    }
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!other_heard && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    EXPECT_TRUE(other_heard);
  };
  (void)OnPlanes({0, 1, 1}, body, hours(1));
}

// A rank that does not read keeps its leader waiting for a while, not for ever.
TEST(ALeaderHearsInSpiteOfARankThatDoesNotRead) {
  std::atomic<bool> leader_heard{false};
  const std::string longer(200000, 'x');
  (void)OnPlanes({0, 1, 1}, [&](ControlPlane* plane) {
    if (plane->rank() == 0) {
      for (int r = 1; r < 3; ++r) EXPECT_OK(plane->Send(r, longer));
      Flush(plane);
      return;
    }
    while (plane->rank() == 2 && !leader_heard) std::this_thread::yield();
    EXPECT_TRUE(Await(plane, true).bytes == longer);
    leader_heard = true;
  });
}

TEST(WakeEndsAWaitUnderWayAndTheNext) {
  (void)OnPlanes({0, 1, 1}, [](ControlPlane* plane) {
    plane->Wake();
    plane->Wait(hours(1), false);
    std::atomic<bool> woken{false};
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      woken = true;
      plane->Wake();
    });
    while (!woken) plane->Wait(hours(1), false);
    other.join();
  });
}

TEST(EnvelopesCarryEqualMessagesOnce) {
  Envelope envelope;
  EXPECT_TRUE(envelope.empty());
  envelope.Add(1, "same");
  envelope.Add(300, "same");
  envelope.Add(300, "same");  // a second message to the same rank
  envelope.Add(2, "");
  const std::string bytes = envelope.Encode();
  EXPECT_EQ(bytes.size(), size_t{1 + 1 + (1 + 3 + 1 + 4) + (1 + 2 + 1 + 4) + (1 + 1 + 1)});
  Envelope back;
  ASSERT_OK(Envelope::Decode(bytes, 301, &back));
  ASSERT_EQ(back.groups().size(), size_t{3});
  EXPECT_EQ(back.groups()[0].ranks, (std::vector<int>{1, 300}));
  EXPECT_EQ(back.groups()[0].bytes, std::string("same"));
  EXPECT_EQ(back.groups()[1].ranks, (std::vector<int>{300}));
  EXPECT_EQ(back.groups()[2].bytes, std::string());
}

TEST(DamagedEnvelopesAreRefused) {
  Envelope envelope;
  envelope.Add(1, "one");
  envelope.Add(2, "two");
  const std::string good = envelope.Encode();
  for (size_t n = 0; n < good.size(); ++n) {
    Envelope back;
    EXPECT_ERROR(Envelope::Decode(good.substr(0, n), 3, &back), StatusCode::kInternal, "damaged");
  }
  Envelope back;
  EXPECT_FALSE(Envelope::Decode(good + "x", 3, &back).ok());
  EXPECT_FALSE(Envelope::Decode(good, 2, &back).ok());  // rank 2 is none of them
  EXPECT_FALSE(Envelope::Decode("\xB1" + std::string(9, '\xff'), 3, &back).ok());
}

// Of three hosts the second does not vote: the leader of the third knows whose votes lack, the
// first that some do. Its own ranks see each other's words.
TEST(TheLeaderBehindKnowsWhoDoesNotVote) {
  std::atomic<int> sure{0};
  (void)OnPlanes({0, 0, 1, 1, 2}, [&](ControlPlane* plane) {
    VoteBoard* votes = plane->votes();
    const int rank = plane->rank();
    const int last = votes->words() - 1;
    const auto poll = [&](const std::function<bool()>& until) {
      while (!until()) {
        std::optional<Message> none;
        EXPECT_OK(plane->Receive(&none));
        std::this_thread::yield();
      }
    };
    if (rank != 3)
      votes->Cast(VoteWord(1, rank == 0 ? Vote::kCommitAbortRequested : Vote::kCommit));
    if (rank == 4) {
      poll([&] { return RequestsAbort(VoteIn(votes->Word(last), 1)); });  // rank 0's question
      EXPECT_EQ(votes->RanksOf(last), (std::vector<int>{2, 3}));
    } else if (rank == 0) {
      poll([&] { return votes->RanksOf(last).empty(); });  // the host before it has voted
      EXPECT_FALSE(IsCommit(VoteIn(votes->Word(last), 1)));
    } else if (rank == 2) {
      EXPECT_EQ(votes->RanksOf(1), (std::vector<int>{3}));
      EXPECT_TRUE(VoteIn(votes->Word(1), 1) == Vote::kNone);
    }
    ++sure;
    poll([&] { return sure == 5; });
    if (rank == 3) votes->Cast(VoteWord(1, Vote::kCommit));
    poll([&] { return IsCommit(VoteIn(votes->Word(last), 1)); });
  });
}

TEST(VotesAreReadBackAndDamagedOnesRefused) {
  for (const uint64_t word : {uint64_t{1}, uint64_t{300}, uint64_t{1} << 62}) {
    const std::string bytes = EncodeVote(5, word);
    EXPECT_TRUE(IsVote(bytes) && !IsVote(Envelope().Encode()) && !IsVote(""));
    int round = 0;
    uint64_t back = 0;
    ASSERT_OK(DecodeVote(bytes, 6, &round, &back));
    EXPECT_EQ(round, 5);
    EXPECT_EQ(back, word);
    EXPECT_FALSE(DecodeVote(bytes, 5, &round, &back).ok());  // there is no such round
    EXPECT_FALSE(DecodeVote(bytes + "x", 6, &round, &back).ok());
    for (size_t n = 0; n < bytes.size(); ++n) {
      EXPECT_ERROR(DecodeVote(bytes.substr(0, n), 6, &round, &back), StatusCode::kInternal,
                   "damaged");
    }
  }
}

}  // namespace
}  // namespace testing
}  // namespace tfhvd

TEST_MAIN()
