// Every type and reduction through whole engines, as threads: the bits are those of the reference.
#include <algorithm>
#include <cstring>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "cc/backends/inproc/inproc_world.h"
#include "cc/engine/engine.h"
#include "cc/numeric/arithmetic.h"
#include "tests/core/conformance_data.h"
#include "tests/core/on_ranks.h"
#include "tests/core/testing.h"

namespace tfhvd {
namespace testing {
namespace {

struct Case {
  DType dtype;
  Reduction reduction;
  int64_t count;
};

std::vector<Case> AllCases() {
  std::vector<Case> cases;
  for (int d = 0; d < kNumDTypes; ++d) {
    for (int o = 0; o < kNumReduceOps; ++o) {
      Reduction plain;
      plain.op = static_cast<ReduceOp>(o);
      Reduction scaled = plain;
      scaled.prescale = 0.5;
      scaled.postscale = 3.0;
      for (const Reduction& reduction : {plain, scaled}) {
        if (!CheckReduction(static_cast<DType>(d), reduction).ok()) continue;
        for (const int64_t count : {0, 1, 33, 5003}) {
          cases.push_back({static_cast<DType>(d), reduction, count});
        }
      }
    }
  }
  return cases;
}

Buffer InputOf(const Case& c, int rank) {
  Buffer input(c.count * ItemSize(c.dtype));
  const bool scaled = c.reduction.prescale != 1.0 || c.reduction.postscale != 1.0;
  FillRandom(&input, PartType(c.dtype),
             static_cast<uint64_t>(rank) * 1000 + static_cast<uint64_t>(c.count), scaled);
  return input;
}

std::string Expected(const Case& c, int ranks) {
  std::vector<Buffer> inputs;
  for (int r = 0; r < ranks; ++r) inputs.push_back(InputOf(c, r));
  std::vector<const void*> pointers;
  for (const Buffer& input : inputs) pointers.push_back(input.data());
  std::string out(static_cast<size_t>(inputs[0].bytes()), '\0');
  const DType part = PartType(c.dtype);
  ReduceRanks(out.data(), pointers.data(), ranks, inputs[0].bytes() / ItemSize(part), part,
              c.reduction);
  return out;
}

void RunRank(InprocGroup* group, int rank, const std::vector<Case>& cases) {
  const std::unique_ptr<World> world = group->OpenWorld(rank);
  std::unique_ptr<ControlPlane> control;
  std::unique_ptr<Communicator> communicator;
  ASSERT_OK(world->OpenControlPlane(&control));
  ASSERT_OK(world->OpenCommunicator(AllOf(world->size()), &communicator));
  const std::vector<std::string> hosts(static_cast<size_t>(world->size()), "here");
  Engine engine(Config(), Log(LogLevel::kFatal, rank), MakeTopology(rank, hosts),
                std::move(control), std::move(communicator));

  struct Call {
    std::unique_ptr<Buffer> in;
    std::string out;
    std::promise<Status> promise;
  };
  std::vector<Call> calls(cases.size());
  std::vector<size_t> order(cases.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::mt19937 random(static_cast<unsigned>(rank));
  std::shuffle(order.begin(), order.end(), random);
  for (const size_t i : order) {
    Call& call = calls[i];
    call.in = std::make_unique<Buffer>(InputOf(cases[i], rank));
    call.out.resize(static_cast<size_t>(call.in->bytes()));
    Entry entry;
    entry.request.Edit()->key.name = "case " + std::to_string(i);
    entry.request.Edit()->reduction = cases[i].reduction;
    entry.request.Edit()->tensors = {{cases[i].dtype, {cases[i].count}}};
    entry.inputs = {call.in->data()};
    entry.outputs = {call.out.data()};
    entry.done = [&call](const Status& s) { call.promise.set_value(s); };
    engine.Submit(std::move(entry));
  }
  for (size_t i = 0; i < cases.size(); ++i) {
    EXPECT_OK(calls[i].promise.get_future().get());
    EXPECT_TRUE(calls[i].out == Expected(cases[i], world->size()));
  }
}

TEST(EveryTypeAndReductionInAnyOrder) {
  const std::vector<Case> cases = AllCases();
  for (int size = 1; size <= 8; ++size) {
    InprocGroup group(size);
    RunThreads(size, [&](int rank) { RunRank(&group, rank, cases); });
  }
}

}  // namespace
}  // namespace testing
}  // namespace tfhvd

TEST_MAIN()
