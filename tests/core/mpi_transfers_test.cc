// What MPI is given of large transfers, on an MPI that is played: no MPI is needed.
#include "cc/backends/mpi/mpi_transfers.h"

#include <cstdint>
#include <cstdio>
#include <map>
#include <set>
#include <vector>

#include "tests/core/testing.h"

namespace tfhvd {
namespace testing {
namespace {

// An MPI whose messages are done in their order, each when it has been asked for twice.
struct Played {
  struct Message {
    bool receives;
    int partner;
    const char* data;
    int bytes;
    int looks = 0;
  };
  std::map<MpiHandle, Message> under_way;
  std::vector<Message> posted;  // all of them
  std::set<MpiHandle> cancelled;
  size_t most = 0;  // under way at once
  int64_t looks = 0;
  size_t fails_at = SIZE_MAX;  // how many messages are posted before one fails
};
Played played;

int Post(bool receives, const void* data, int bytes, int partner, MpiHandle* request) {
  if (played.posted.size() == played.fails_at) return 7;
  const Played::Message message = {receives, partner, static_cast<const char*>(data), bytes};
  played.posted.push_back(message);
  *request = played.posted.size();
  played.under_way[*request] = message;
  played.most = std::max(played.most, played.under_way.size());
  return 0;
}

const MpiApi* PlayedApi() {
  static MpiApi api = {};
  api.ErrorText = [](int error, char* text, int size) {
    std::snprintf(text, static_cast<size_t>(size), "error %d", error);
  };
  api.Isend = [](const void* data, int bytes, int to, int /*tag*/, MpiHandle /*comm*/,
                 MpiHandle* request) { return Post(false, data, bytes, to, request); };
  api.Irecv = [](void* data, int bytes, int from, int /*tag*/, MpiHandle /*comm*/,
                 MpiHandle* request) { return Post(true, data, bytes, from, request); };
  api.Test = [](MpiHandle* request, int* done) {
    ++played.looks;
    Played::Message& message = played.under_way.at(*request);
    *done = ++message.looks > 1 || played.cancelled.count(*request) > 0 ? 1 : 0;
    if (*done != 0) played.under_way.erase(*request);
    return 0;
  };
  api.Cancel = [](MpiHandle* request) {
    played.cancelled.insert(*request);
    return 0;
  };
  return &api;
}

MpiTransfers Of(int size) {
  MpiPort port;
  port.api = PlayedApi();
  for (int r = 0; r < size; ++r) port.members.push_back(r);
  return MpiTransfers(std::move(port));
}

// Addresses alone: nothing is read or written there.
char* At(int64_t offset) { return reinterpret_cast<char*>(uintptr_t{1} << 40) + offset; }

TEST(MpiHasAWindowOfEachLaneWhateverIsPosted) {
  constexpr int64_t kBytes = (int64_t{1} << 30) + 5;
  played = Played();
  MpiTransfers transfers = Of(3);
  transfers.SetOnWait([](const Wait&) { return Status::Ok(); });
  ASSERT_OK(transfers.Begin("alltoall"));
  for (const int peer : {1, 2}) {
    (void)transfers.Receive(peer, At(peer * kBytes), kBytes);
    (void)transfers.Send(peer, At((4 + peer) * kBytes), kBytes);
  }
  ASSERT_OK(transfers.End());
  EXPECT_TRUE(played.under_way.empty());
  EXPECT_EQ(played.most, 4 * kMpiWindow);
  const int64_t messages = 4 * ((kBytes + kMessageBytes - 1) / kMessageBytes);
  EXPECT_EQ(static_cast<int64_t>(played.posted.size()), messages);
  // Two for each message to be done, and one where the window's next one is not: not one for each
  // that waits.
  EXPECT_TRUE(played.looks <= 3 * messages);
  std::map<std::pair<bool, int>, int64_t> at;  // by lane
  for (const Played::Message& message : played.posted) {
    int64_t& next = at[{message.receives, message.partner}];
    const int64_t begin = (message.partner + (message.receives ? 0 : 4)) * kBytes;
    EXPECT_EQ(message.data - At(begin), next);
    next += message.bytes;
  }
  for (const auto& [lane, bytes] : at) EXPECT_EQ(bytes, kBytes);
}

TEST(TransfersOfALaneFollowEachOther) {
  played = Played();
  MpiTransfers transfers = Of(2);
  transfers.SetOnWait([](const Wait&) { return Status::Ok(); });
  ASSERT_OK(transfers.Begin("broadcast"));
  const Transfers::TransferId first = transfers.Send(1, At(0), 100 * kMessageBytes);
  const Transfers::TransferId second = transfers.Send(1, At(100 * kMessageBytes), 3);
  const Transfers::TransferId none = transfers.Send(1, At(0), 0);
  EXPECT_TRUE(transfers.done(none));
  EXPECT_FALSE(transfers.done(second));  // MPI does not have it yet
  EXPECT_TRUE(transfers.Wait(first));
  EXPECT_TRUE(transfers.Wait(second));
  ASSERT_OK(transfers.End());
  ASSERT_EQ(played.posted.size(), size_t{101});
  EXPECT_EQ(played.posted.back().bytes, 3);
}

TEST(AfterAFailureNothingIsPostedAnyMore) {
  played = Played();
  played.fails_at = 2 * kMpiWindow + 3;
  MpiTransfers transfers = Of(2);
  transfers.SetOnWait([](const Wait&) { return Status::Ok(); });
  ASSERT_OK(transfers.Begin("alltoall"));
  (void)transfers.Receive(1, At(0), 1000 * kMessageBytes);
  (void)transfers.Send(1, At(1000 * kMessageBytes), 1000 * kMessageBytes);
  EXPECT_ERROR(transfers.End(), StatusCode::kAborted, "error 7");
  EXPECT_EQ(played.posted.size(), played.fails_at);
  for (int i = 0; i < 3 && !transfers.Settle(); ++i) {
  }
  EXPECT_TRUE(transfers.Settle());
  EXPECT_TRUE(played.under_way.empty());
}

}  // namespace
}  // namespace testing
}  // namespace tfhvd

TEST_MAIN()
