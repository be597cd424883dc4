// Waits for messages, whatever carries them.
#include "cc/collectives/transfer/transfers.h"

#include <chrono>
#include <thread>
#include <vector>

#include "tests/core/testing.h"

namespace tfhvd {
namespace testing {
namespace {

// One message, which fails as soon as its rank has slept for so long that the monitor is to be
// asked.
class FailsAfterASleep : public Transfers {
 public:
  FailsAfterASleep() : Transfers({0, 1}, 0) {}

  const char* name() const override { return "test"; }
  const char* title() const override { return "test"; }
  bool Settle() override { return true; }

 protected:
  void Start(TransferId id, const Lane& /*lane*/, char* /*data*/, int64_t /*bytes*/) override {
    Add(id);
    active_ = true;
  }
  bool Advance() override {
    if (slept_) {
      active_ = false;
      Fail(Status::Aborted("rank 1 is lost"));
    }
    return false;
  }
  bool active() const override { return active_; }
  std::vector<int> peers() const override { return {1}; }
  void TakeBack() override { active_ = false; }
  void Sleep(std::chrono::nanoseconds most, Backoff* /*backoff*/) override {
    std::this_thread::sleep_for(most);
    slept_ = true;
  }

 private:
  bool active_ = false;
  bool slept_ = false;
};

TEST(AFailureStaysWhateverTheMonitorSays) {
  FailsAfterASleep transfers;
  int asked = 0;
  transfers.SetOnWait([&asked](const Wait& /*wait*/) {
    ++asked;
    return Status::Ok();
  });
  EXPECT_OK(transfers.Begin("test"));
  char got = 0;
  EXPECT_FALSE(transfers.Wait(transfers.Receive(1, &got, 1)));
  EXPECT_TRUE(asked > 0);
  EXPECT_ERROR(transfers.End(), StatusCode::kAborted, "rank 1 is lost");
}

}  // namespace
}  // namespace testing
}  // namespace tfhvd

TEST_MAIN()
