// While a NoMemory lives, the kernel gives this process no memory to share (because of a limit on
// the size of files, which the memory's anonymous file runs into).
#pragma once

#include <signal.h>
#include <sys/resource.h>

#include "tests/core/testing.h"

namespace tfhvd {
namespace testing {

class NoMemory {
 public:
  NoMemory() {
    signal(SIGXFSZ, SIG_IGN);
    EXPECT_EQ(getrlimit(RLIMIT_FSIZE, &usual_), 0);
    rlimit little = usual_;
    little.rlim_cur = 4096;
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &little), 0);
  }
  ~NoMemory() { EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &usual_), 0); }
  NoMemory(const NoMemory&) = delete;
  NoMemory& operator=(const NoMemory&) = delete;

 private:
  rlimit usual_{};
};

}  // namespace testing
}  // namespace tfhvd
