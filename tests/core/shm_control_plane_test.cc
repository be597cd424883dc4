// The control plane through shared memory: in order, whole, of any length, and never a lost
// wake-up.
#include "cc/backends/shm/shm_control_plane.h"

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/core/numbered_messages.h"
#include "tests/core/on_ranks.h"
#include "tests/core/testing.h"

namespace tfhvd {
namespace testing {
namespace {

using std::chrono::hours;

// Runs `body(plane)` on every rank; ranks are threads that map the memory each for itself.
template <typename Body>
void OnPlanes(int size, const Body& body) {
  OnRanks(size, [&](Communicator* host) {
    std::unique_ptr<ControlPlane> plane;
    ASSERT_OK(MakeShmControlPlane(host, &plane));
    body(plane.get());
    EXPECT_OK(host->Barrier());  // nobody reads any more
  });
}

TEST(MessagesOfAllLengthsArriveInOrder) {
  constexpr int kEach = 60;
  for (const int size : {2, 3, 6}) {
    OnPlanes(size, [](ControlPlane* plane) {
      const int rank = plane->rank();
      std::vector<int> peers;
      for (int r = 0; r < plane->size(); ++r) {
        if (r != rank && (r == 0 || rank == 0)) peers.push_back(r);
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
      Flush(plane);
    });
  }
}

// Question and answer: every wake-up counts.
TEST(ThousandsOfQuestionsAreAnswered) {
  constexpr int kRounds = 5000;
  OnPlanes(3, [](ControlPlane* plane) {
    for (int i = 0; i < kRounds; ++i) {
      if (plane->rank() == 0) {
        for (int r = 1; r < 3; ++r) EXPECT_OK(plane->Send(r, std::to_string(i)));
        for (int r = 1; r < 3; ++r)
          EXPECT_EQ(Await(plane, i % 2 == 0).bytes, std::to_string(2 * i));
      } else {
        EXPECT_EQ(Await(plane, i % 3 == 0).bytes, std::to_string(i));
        EXPECT_OK(plane->Send(0, std::to_string(2 * i)));
      }
    }
  });
}

TEST(WakeEndsAWaitUnderWayAndTheNext) {
  OnPlanes(1, [](ControlPlane* plane) {
    plane->Wake();
    plane->Wait(hours(1), false);
    std::thread other([plane] { plane->Wake(); });
    plane->Wait(hours(1), true);
    other.join();
    plane->Wait(std::chrono::milliseconds(1), false);  // nobody wakes it: its time ends
  });
}

// Inline execution is woken by nothing, and what has come by its end wakes the one that sleeps.
TEST(WhatComesDuringInlineExecutionIsNotLost) {
  constexpr int kRounds = 300;
  OnPlanes(1, [](ControlPlane* plane) {
    EXPECT_TRUE(plane->can_run_inline());
    for (int i = 0; i < kRounds; ++i) {
      std::thread sleeper([plane] { plane->Wait(hours(1), false); });
      if (i % 3 == 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
      plane->BeginInline();
      std::thread other([plane] { plane->Wake(); });
      if (i % 2 == 0) other.join();
      plane->EndInline();
      if (i % 2 != 0) other.join();
      sleeper.join();
    }
  });
}

}  // namespace
}  // namespace testing
}  // namespace tfhvd

TEST_MAIN()
