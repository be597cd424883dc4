// Sleeping on a word: what ends it, and what does not.
#include "cc/backends/shm/futex.h"

#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/core/testing.h"

namespace tfhvd {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

std::atomic<int> signals_taken{0};

// Sends this thread signals that it handles, as a profiler does, as long as it lives.
class Signals {
 public:
  Signals() {
    struct sigaction action = {};
    action.sa_handler = [](int) { ++signals_taken; };  // without SA_RESTART
    sigaction(SIGUSR1, &action, &before_);
    const pthread_t target = pthread_self();
    sender_ = std::thread([this, target] {
      while (!over_) {
        pthread_kill(target, SIGUSR1);
        std::this_thread::sleep_for(milliseconds(1));
      }
    });
  }
  ~Signals() {
    over_ = true;
    sender_.join();
    sigaction(SIGUSR1, &before_, nullptr);
  }

 private:
  std::atomic<bool> over_{false};
  struct sigaction before_ = {};
  std::thread sender_;
};

TEST(ASignalNeitherEndsNorProlongsAWait) {
  const Signals signals;
  std::atomic<uint32_t> word{7};
  signals_taken = 0;
  const auto begin = Clock::now();
  EXPECT_FALSE(FutexWait(&word, 7, milliseconds(300)));
  EXPECT_TRUE(Clock::now() - begin >= milliseconds(300));
  EXPECT_TRUE(signals_taken > 0);
}

TEST(AnotherValueEndsAWaitAtOnce) {
  std::atomic<uint32_t> word{8};
  EXPECT_TRUE(FutexWait(&word, 7, std::chrono::hours(1)));
}

TEST(AWakeUpEndsAWait) {
  const Signals signals;
  std::atomic<uint32_t> word{7};
  std::atomic<bool> over{false};
  std::thread waker([&] {
    std::this_thread::sleep_for(milliseconds(20));
    word = 8;
    while (!over) {
      FutexWakeAll(&word);
      std::this_thread::yield();
    }
  });
  EXPECT_TRUE(FutexWait(&word, 7, std::chrono::nanoseconds::max()));
  over = true;
  waker.join();
}

TEST(NoTimeIsOverAtOnce) {
  std::atomic<uint32_t> word{7};
  EXPECT_FALSE(FutexWait(&word, 7, milliseconds(0)));
  EXPECT_FALSE(FutexWait(&word, 7, milliseconds(-5)));
}

}  // namespace
}  // namespace tfhvd

TEST_MAIN()
