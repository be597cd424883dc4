// The flight record: what another process reads of the last entries, in every state of theirs.
#include "cc/observe/flight_record.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/core/engines.h"

namespace tfhvd {
namespace {

// An entry, as it was read.
struct Noted {
  uint64_t id = 0;
  std::string name;
  std::string origin;
  std::string phase;
  int64_t submitted = 0, agreed = 0, began = 0, ended = 0, bytes = 0;
  int waited_for = -1;
  int tensors = 0;
  FlightState state = FlightState::kPending;
};

// The memory as another process gets it, which shares nothing with this one but the descriptor.
class Reader {
 public:
  explicit Reader(int file) : bytes_(static_cast<size_t>(lseek(file, 0, SEEK_END))) {
    EXPECT_EQ(pread(file, bytes_.data(), bytes_.size(), 0), static_cast<ssize_t>(bytes_.size()));
  }

  const FlightHeader& header() const {
    return *reinterpret_cast<const FlightHeader*>(bytes_.data());
  }

  // In the order of submission.
  std::vector<Noted> entries() const {
    std::vector<Noted> found;
    const FlightHeader& head = header();
    const char* const text =
        bytes_.data() + head.header_bytes + size_t{head.slots} * head.slot_bytes;
    for (uint32_t i = 0; i < head.slots; ++i) {
      const FlightSlot& slot = *reinterpret_cast<const FlightSlot*>(
          bytes_.data() + head.header_bytes + size_t{i} * head.slot_bytes);
      if (slot.id == 0) continue;
      Noted noted;
      noted.id = slot.id;
      noted.name = text + slot.name;
      if (slot.name != 0) noted.origin = text + slot.name + noted.name.size() + 1;
      noted.phase = text + slot.phase;
      noted.submitted = slot.submitted;
      noted.agreed = slot.agreed;
      noted.began = slot.began;
      noted.ended = slot.ended;
      noted.bytes = slot.bytes;
      noted.waited_for = slot.waited_for;
      noted.tensors = slot.tensors;
      noted.state = slot.state;
      found.push_back(std::move(noted));
    }
    std::sort(found.begin(), found.end(),
              [](const Noted& a, const Noted& b) { return a.id < b.id; });
    return found;
  }

 private:
  std::vector<char> bytes_;
};

Reader Read(Rank* rank) { return Reader(rank->engine()->telemetry().flight_record()); }

TEST(SaysWhoseItIs) {
  RunRanks(2, [](Rank* rank) {
    const Reader reader = Read(rank);
    const FlightHeader& head = reader.header();
    EXPECT_EQ(std::string(head.magic, sizeof head.magic), std::string("tfhvdrec"));
    EXPECT_EQ(head.version, kFlightVersion);
    EXPECT_EQ(head.rank, rank->rank());
    EXPECT_EQ(head.size, 2);
    EXPECT_EQ(head.pid, static_cast<int32_t>(getpid()));
    EXPECT_EQ(std::string(head.host), std::string("here"));
    EXPECT_EQ(reader.entries().size(), size_t{0});
  });
}

TEST(NotesHowFarTheTrainingIs) {
  RunRanks(1, [](Rank* rank) {
    EXPECT_EQ(Read(rank).header().epoch.load(), int64_t{0});
    rank->engine()->telemetry().NotePosition(2, 37);
    EXPECT_EQ(Read(rank).header().epoch.load(), int64_t{2});
    EXPECT_EQ(Read(rank).header().step.load(), int64_t{37});
  });
}

TEST(NotesHowLongItsWatchCanBeReliedOn) {
  RunRanks(1, [](Rank* rank) {
    EXPECT_EQ(Read(rank).header().tells_until.load(), int64_t{0});
    rank->engine()->telemetry().NoteWatch(std::chrono::seconds(20));
    const int64_t lasting = Read(rank).header().tells_until.load() - Read(rank).header().began;
    EXPECT_TRUE(lasting >= int64_t{20} * 1000 * 1000 * 1000);
  });
}

TEST(NotesWhatIsDone) {
  RunRanks(2, [](Rank* rank) {
    EXPECT_OK(AllReduce(rank, "loss", 100, 1.0f)->Wait());
    const Reader reader = Read(rank);
    const std::vector<Noted> entries = reader.entries();
    ASSERT_TRUE(entries.size() == 1);
    const Noted& loss = entries[0];
    EXPECT_EQ(loss.name, std::string("loss"));
    EXPECT_EQ(loss.bytes, int64_t{400});
    EXPECT_EQ(loss.tensors, 1);
    EXPECT_EQ(loss.phase, std::string("inproc_ALLREDUCE"));
    EXPECT_TRUE(loss.state == FlightState::kOk);
    EXPECT_TRUE(reader.header().began <= loss.submitted);
    EXPECT_TRUE(loss.submitted <= loss.agreed);
    EXPECT_TRUE(loss.agreed <= loss.began);
    EXPECT_TRUE(loss.began <= loss.ended);
    EXPECT_EQ(reader.header().submitted.load(), uint64_t{1});
    EXPECT_EQ(reader.header().done.load(), uint64_t{1});
    EXPECT_EQ(reader.header().done_at.load(), loss.ended);
  });
}

TEST(NotesWhatWaits) {
  RunRanks(2, [](Rank* rank) {
    std::unique_ptr<Call> early;
    if (rank->rank() == 0) {
      early = AllReduce(rank, "early", 1, 1.0f);
      const std::vector<Noted> entries = Read(rank).entries();
      ASSERT_TRUE(entries.size() == 1);
      EXPECT_EQ(entries[0].name, std::string("early"));
      EXPECT_TRUE(entries[0].state == FlightState::kPending);
      EXPECT_EQ(entries[0].agreed, int64_t{0});
      EXPECT_EQ(entries[0].ended, int64_t{0});
    }
    EXPECT_OK(AllReduce(rank, "together", 1, 1.0f)->Wait());
    if (rank->rank() == 1) early = AllReduce(rank, "early", 1, 1.0f);
    EXPECT_OK(early->Wait());
  });
}

// The coordinator has seen by the time at which "first" is agreed that two have announced "late".
TEST(EveryRankNotesWhoCameLast) {
  RunRanks(3, [](Rank* rank) {
    const bool last = rank->rank() == 2;
    std::unique_ptr<Call> late;
    if (!last) late = AllReduce(rank, "late", 1, 1.0f);
    EXPECT_OK(AllReduce(rank, "first", 1, 1.0f)->Wait());
    if (last) late = AllReduce(rank, "late", 1, 1.0f);
    EXPECT_OK(late->Wait());
    const std::vector<Noted> entries = Read(rank).entries();
    const Noted& noted = entries[last ? 1 : 0];
    EXPECT_EQ(noted.name, std::string("late"));
    EXPECT_EQ(noted.waited_for, last ? -1 : 2);
  });
}

TEST(NotesWhatFails) {
  RunRanks(2, [](Rank* rank) {
    EXPECT_FALSE(AllReduce(rank, "unlike", rank->rank() + 1, 1.0f)->Wait().ok());
    const std::vector<Noted> entries = Read(rank).entries();
    ASSERT_TRUE(entries.size() == 1);
    EXPECT_TRUE(entries[0].state == FlightState::kFailed);
    EXPECT_TRUE(entries[0].ended != 0);
    EXPECT_EQ(entries[0].began, int64_t{0});
  });
}

// A request that lies where another one was has its own name.
TEST(NamesEachByItsOwnName) {
  RunRanks(1, [](Rank* rank) {
    for (int i = 0; i < 50; ++i) {
      Call call;
      call.in = call.out = {1.0f};
      Entry entry = EntryFor(&call, Collective::kAllReduce, "step" + std::to_string(i % 7), {1});
      entry.request.Edit()->origin = "train.py:" + std::to_string(i);
      rank->engine()->Submit(std::move(entry));
      EXPECT_OK(call.Wait());
    }
    const std::vector<Noted> entries = Read(rank).entries();
    ASSERT_TRUE(entries.size() == 50);
    for (int i = 0; i < 50; ++i) {
      EXPECT_EQ(entries[i].name, "step" + std::to_string(i % 7));
      EXPECT_EQ(entries[i].origin, "train.py:" + std::to_string(i));
    }
  });
}

// More of them live at once than are known by address, so that many addresses fall together.
TEST(NamesEachOfManyByItsOwnName) {
  RunRanks(1, [](Rank* rank) {
    constexpr int kMany = 3000;
    constexpr int kSlots = FlightRecord::kSlots;
    std::vector<SharedRequest> requests;
    for (int i = 0; i < kMany; ++i) {
      Call call;
      call.in = call.out = {1.0f};
      Entry entry = EntryFor(&call, Collective::kAllReduce, "n" + std::to_string(i), {1});
      requests.push_back(entry.request);
    }
    std::vector<std::string> expected;
    for (int i = 0; i < 2 * kSlots; ++i) {
      const int which = i % 2 == 0 ? i % kMany : i * 7 % 40;  // some come again and again
      Call call;
      call.in = call.out = {1.0f};
      Entry entry = EntryFor(&call, Collective::kAllReduce, "", {1});
      entry.request = requests[which];
      rank->engine()->Submit(std::move(entry));
      EXPECT_OK(call.Wait());
      if (i >= kSlots) expected.push_back("n" + std::to_string(which));
    }
    std::vector<std::string> names;
    for (const Noted& noted : Read(rank).entries()) names.push_back(noted.name);
    EXPECT_EQ(names, expected);
  });
}

TEST(KeepsTheLastOnes) {
  RunRanks(1, [](Rank* rank) {
    constexpr uint64_t kMany = FlightRecord::kSlots + 100;
    for (uint64_t i = 0; i < kMany; ++i) EXPECT_OK(AllReduce(rank, "again", 1, 1.0f)->Wait());
    const Reader reader = Read(rank);
    const std::vector<Noted> entries = reader.entries();
    EXPECT_EQ(reader.header().done.load(), kMany);
    EXPECT_EQ(entries.size(), size_t{FlightRecord::kSlots});
    EXPECT_EQ(entries.front().id, uint64_t{101});
    EXPECT_EQ(entries.back().id, kMany);
  });
}

TEST(GoesOnWithoutRoomForNames) {
  RunRanks(1, [](Rank* rank) {
    const std::string big(FlightRecord::kTextBytes, 'n');
    EXPECT_OK(AllReduce(rank, big, 1, 1.0f)->Wait());
    EXPECT_OK(AllReduce(rank, "small", 1, 1.0f)->Wait());
    const std::vector<Noted> entries = Read(rank).entries();
    ASSERT_TRUE(entries.size() == 2);
    EXPECT_EQ(entries[0].name, std::string());
    EXPECT_EQ(entries[1].name, std::string("small"));
  });
}

TEST(IsReadWhileItIsWritten) {
  RunRanks(2, [](Rank* rank) {
    std::atomic<bool> done{false};
    std::thread reading([&] {
      while (!done) {
        for (const Noted& noted : Read(rank).entries()) {
          EXPECT_TRUE(noted.name == "a" || noted.name == "b" || noted.name.empty());
        }
      }
    });
    for (int i = 0; i < 300; ++i) {
      const auto a = AllReduce(rank, "a", 1, 1.0f);
      const auto b = AllReduce(rank, "b", 1, 1.0f);
      EXPECT_OK(a->Wait());
      EXPECT_OK(b->Wait());
    }
    done = true;
    reading.join();
  });
}

}  // namespace
}  // namespace tfhvd

TEST_MAIN()
