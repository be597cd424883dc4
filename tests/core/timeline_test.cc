// The timeline: what it says of each entry, that every begin has its end, and that it may begin and
// end at any time.
#include "cc/observe/timeline.h"

#include <atomic>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/core/engines.h"

namespace tfhvd {
namespace {

// The text after `"key": ` in an event's line, up to a comma or bracket; quotes are left out.
std::string Field(const std::string& line, const std::string& key) {
  const std::string wanted = "\"" + key + "\": ";
  size_t at = line.find(wanted);
  if (at == std::string::npos) return "";
  at += wanted.size();
  const size_t end = line[at] == '"' ? line.find('"', at + 1) : line.find_first_of(",}", at);
  return line[at] == '"' ? line.substr(at + 1, end - at - 1) : line.substr(at, end - at);
}

// The phases of each row, such as "<NEGOTIATE_ALLREDUCE 0 1 > <ALLREDUCE > ": of a phase its begin,
// what is in it, and its end. Checks the file's form, and that begins and ends fit together.
std::map<std::string, std::string> Rows(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  std::map<std::string, std::string> rows;
  std::map<std::string, std::string> names;  // by row
  std::map<std::string, int> depth;          // by row and lane
  std::map<std::string, double> last;        // time, by row and lane
  EXPECT_TRUE(lines.size() >= 3);
  if (lines.size() < 3) return rows;
  EXPECT_EQ(lines.front(), std::string("["));
  EXPECT_EQ(lines.back(), std::string("]"));
  for (size_t i = 1; i + 1 < lines.size(); ++i) {
    const std::string& line = lines[i];
    EXPECT_EQ(line.substr(0, 1), std::string("{"));
    EXPECT_EQ(line.back() == ',', i + 2 < lines.size());
    const std::string phase = Field(line, "ph");
    const std::string row = Field(line, "pid");
    const std::string lane = row + "/" + Field(line, "tid");
    if (phase == "M") {
      names[row] = Field(line.substr(line.find("args")), "name");
      continue;
    }
    std::string* text = &rows[names.at(row)];
    const double time = std::stod(Field(line, "ts"));
    EXPECT_TRUE(time >= last[lane]);
    last[lane] = time;
    if (phase == "B") {
      ++depth[lane];
      *text += "<" + Field(line, "name") + " ";
    } else if (phase == "E") {
      EXPECT_TRUE(--depth[lane] >= 0);
      *text += Field(line, "error").empty() ? "> " : "failed> ";
    } else {
      *text += Field(line, "name") + " ";
    }
  }
  for (const auto& [lane, open] : depth) EXPECT_EQ(open, 0);
  std::remove(path.c_str());
  return rows;
}

TEST(NoTwoRowsOfAllRanksHaveOneNumber) {
  constexpr int64_t kMany = 1 << 20;
  std::set<int64_t> numbers;
  size_t count = 0;
  for (const int rank : {0, 1, 2, 1000, 1 << 20}) {
    for (const int64_t row : {int64_t{0}, int64_t{1}, kMany - 1, kMany, kMany + 1, 2 * kMany - 1,
                              2 * kMany, 300 * kMany + 7}) {
      numbers.insert(TimelineRow(rank, row));
      ++count;
    }
  }
  EXPECT_EQ(numbers.size(), count);
  EXPECT_TRUE(*numbers.rbegin() < int64_t{1} << 53);  // whole as a number of JavaScript's
}

TEST(TellsWhatBecomesOfATensor) {
  std::atomic<int> recording{0};
  RunRanks(2, [&recording](Rank* rank) {
    const std::string path = "whole.{rank}.json";
    ASSERT_OK(rank->engine()->telemetry().StartTimeline(path, true));
    // What is announced to rank 0 before that records is not in its file.
    for (++recording; recording < 2;) std::this_thread::yield();
    EXPECT_OK(AllReduce(rank, "x", 3, 1.0f)->Wait());
    EXPECT_OK(rank->engine()->telemetry().StopTimeline());
    auto rows = Rows("whole." + std::to_string(rank->rank()) + ".json");
    const std::string rest = "> <ALLREDUCE <QUEUE > <INPROC_ALLREDUCE > > ";
    if (rank->rank() == 0) {
      const bool first = rows["x"] == "<NEGOTIATE_ALLREDUCE 0 1 " + rest;
      EXPECT_TRUE(first || rows["x"] == "<NEGOTIATE_ALLREDUCE 1 0 " + rest);
    } else {
      EXPECT_EQ(rows["x"], "<NEGOTIATE_ALLREDUCE " + rest);
    }
    const std::string me = "rank " + std::to_string(rank->rank()) + " on here";
    EXPECT_EQ(rows[me], std::string("CYCLE_START "));
  });
}

TEST(TellsOfTheFusionBuffer) {
  RunRanks(2, [](Rank* rank) {
    ASSERT_OK(rank->engine()->telemetry().StartTimeline("group.json", false));
    std::vector<float> in(8, 1.0f), out(8);
    std::promise<Status> promise;
    Entry entry;
    entry.request.Edit()->key.name = "group";
    for (int t = 0; t < 2; ++t) {
      entry.request.Edit()->tensors.push_back({DType::kFloat32, {4}});
      entry.inputs.push_back(&in[4 * t]);
      entry.outputs.push_back(&out[4 * t]);
    }
    entry.done = [&promise](const Status& s) { promise.set_value(s); };
    rank->engine()->Submit(std::move(entry));
    EXPECT_OK(promise.get_future().get());
    EXPECT_OK(rank->engine()->telemetry().StopTimeline());
    if (rank->rank() != 0) return;  // has none
    const std::string row = Rows("group.json")["group"];
    const std::string execution =
        "<ALLREDUCE <QUEUE > <MEMCPY_IN_FUSION_BUFFER > <INPROC_ALLREDUCE > "
        "<MEMCPY_OUT_FUSION_BUFFER > > ";
    EXPECT_EQ(row.substr(row.find("<ALLREDUCE")), execution);
  });
}

TEST(TellsOfErrors) {
  RunRanks(2, [](Rank* rank) {
    ASSERT_OK(rank->engine()->telemetry().StartTimeline("error.json", false));
    const auto call = AllReduce(rank, "x", rank->rank() + 1, 1.0f);
    EXPECT_ERROR(call->Wait(), StatusCode::kInvalidArgument, "Mismatched shapes");
    EXPECT_OK(rank->engine()->telemetry().StopTimeline());
    if (rank->rank() != 0) return;
    const std::string row = Rows("error.json")["x"];
    EXPECT_EQ(row.substr(row.size() - 8), std::string("failed> "));
  });
}

// Rank 0 counts for sets that it is not in.
TEST(TellsOfOtherRanksProcessSets) {
  RunRanks(3, [](Rank* rank) {
    Entry make;
    std::promise<Status> made;
    make.request.Edit()->key.name = "sets";
    make.request.Edit()->kind = Collective::kAddProcessSet;
    make.request.Edit()->members = {1, 2};
    make.done = [&made](const Status& s) { made.set_value(s); };
    rank->engine()->Submit(std::move(make));
    ASSERT_OK(made.get_future().get());
    ASSERT_OK(rank->engine()->telemetry().StartTimeline("others.json", false));
    ASSERT_OK(AllReduce(rank, "began", 1, 1.0f)->Wait());
    if (rank->rank() > 0) {
      Call call;
      call.in = call.out = {1.0f};
      Entry entry = EntryFor(&call, Collective::kAllReduce, "theirs", {1});
      entry.request.Edit()->key.process_set = 1;
      rank->engine()->Submit(std::move(entry));
      EXPECT_OK(call.Wait());
    }
    ASSERT_OK(AllReduce(rank, "ended", 1, 1.0f)->Wait());
    EXPECT_OK(rank->engine()->telemetry().StopTimeline());
    if (rank->rank() != 0) return;
    const std::string row = Rows("others.json")["theirs (process set 1)"];
    EXPECT_TRUE(row == "<NEGOTIATE_ALLREDUCE 1 2 > " || row == "<NEGOTIATE_ALLREDUCE 2 1 > ");
  });
}

TEST(BeginsAndEndsAtAnyTime) {
  constexpr int kRounds = 12;
  RunRanks(2, [](Rank* rank) {
    std::atomic<bool> done{false};
    std::thread starting([&] {
      for (int round = 0; round < kRounds; ++round) {
        const std::string path = "any." + std::to_string(round) + ".";
        EXPECT_OK(rank->engine()->telemetry().StartTimeline(path + "{rank}", round % 2 == 0));
        std::this_thread::sleep_for(std::chrono::milliseconds(round));
        EXPECT_OK(rank->engine()->telemetry().StopTimeline());
        (void)Rows(path + std::to_string(rank->rank()));
      }
      done = true;
    });
    float others = 1.0f;  // until both have ended, which the sum says
    while (others > 0.0f) {
      const float mine = done ? 0.0f : 1.0f;
      std::vector<std::unique_ptr<Call>> calls;
      calls.push_back(AllReduce(rank, "goes on", 1, mine));
      for (int i = 0; i < 3; ++i) calls.push_back(AllReduce(rank, "turns", 5, 1.0f, true));
      for (const auto& call : calls) EXPECT_OK(call->Wait());
      others = calls[0]->out[0];
    }
    starting.join();
  });
}

TEST(EndsWithTheEngine) {
  RunRanks(1, [](Rank* rank) {
    ASSERT_OK(rank->engine()->telemetry().StartTimeline("left.json", false));
    EXPECT_OK(AllReduce(rank, "x", 1, 1.0f)->Wait());
  });
  EXPECT_CONTAINS(Rows("left.json")["x"], "<NEGOTIATE_ALLREDUCE 0 > <ALLREDUCE ");
}

TEST(SaysWhatIsWrong) {
  Timeline timeline(0, "here");
  EXPECT_OK(timeline.Stop());
  EXPECT_ERROR(timeline.Start("no/such/folder/t.json", false), StatusCode::kInvalidArgument,
               "Received: 'no/such/folder/t.json': No such file or directory. Expected: a file");
  EXPECT_ERROR(timeline.Start("/dev/null", false), StatusCode::kInvalidArgument, "no regular file");
  ASSERT_OK(timeline.Start("once.json", false));
  EXPECT_ERROR(timeline.Start("twice.json", false), StatusCode::kInvalidArgument,
               "already being recorded to 'once.json'. Call hvd.stop_timeline()");
  EXPECT_OK(timeline.Stop());
  EXPECT_EQ(Rows("once.json").size(), size_t{0});
}

TEST(EscapesNames) { EXPECT_EQ(JsonString("a\"b\\\n"), std::string("\"a\\\"b\\\\\\u000a\"")); }

// What cannot be written in time is left out; what has been begun is ended.
TEST(RefusesWhatIsTooMuch) {
  std::unique_ptr<TraceFile> file;
  TraceEvent event;
  event.phase = 'M';
  event.name = "process_name";
  event.args = "{\"name\": \"row\"}";
  ASSERT_OK(TraceFile::Open("much.json", event, &file, 0));
  event.args.clear();
  event.name = "tick";
  event.phase = 'X';
  EXPECT_FALSE(file->Push(event, false));
  EXPECT_TRUE(file->Push(event, true));
  ASSERT_OK(file->Close());
  EXPECT_FALSE(file->Push(event, true));
  EXPECT_EQ(Rows("much.json")["row"], std::string("tick "));
}

}  // namespace
}  // namespace tfhvd

TEST_MAIN()
