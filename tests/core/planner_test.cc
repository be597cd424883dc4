// The planner: what is fused with what, in which order, and that every rank plans alike.
#include "cc/fuse/planner.h"

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/core/testing.h"

namespace tfhvd {
namespace {

constexpr int64_t kMiB = 1 << 20;

Agreed Of(Collective kind, std::vector<TensorSpec> tensors) {
  Agreed a;
  a.entry.request.Edit()->key.name = "x";
  a.entry.request.Edit()->kind = kind;
  a.entry.request.Edit()->tensors = std::move(tensors);
  return a;
}
Agreed Reduce(int64_t floats, DType dtype = DType::kFloat32) {
  return Of(Collective::kAllReduce, {{dtype, {floats}}});
}
Agreed Gather(std::vector<int64_t> first_dims, size_t rank, int64_t width = 1) {
  Agreed a = Of(Collective::kAllGather, {{DType::kFloat32, {first_dims[rank], width}}});
  a.decision.first_dims.push_back(std::move(first_dims));
  return a;
}

// "0 1|2.1": plans separated by bars, pieces as entry or entry.tensor.
std::string Text(const std::vector<Agreed>& agreed, int64_t threshold,
                 int64_t alone_from = FusionLimits().alone_from) {
  std::string s;
  for (const Plan& plan : MakePlans(agreed, {threshold, alone_from})) {
    if (!s.empty()) s += "|";
    for (size_t i = 0; i < plan.pieces.size(); ++i) {
      const Piece& p = plan.pieces[i];
      s += (i > 0 ? " " : "") + std::to_string(p.agreed);
      if (p.tensor > 0) s += "." + std::to_string(p.tensor);
    }
  }
  return s;
}

template <typename... A>
std::vector<Agreed> List(A... agreed) {
  std::vector<Agreed> all;
  (all.push_back(std::move(agreed)), ...);
  return all;
}

TEST(NothingGivesNothing) { EXPECT_EQ(MakePlans({}, {kMiB}).size(), size_t{0}); }

// A GPU copies faster: sixteen times as many bytes are copied together.
TEST(LargerTensorsOfAGpuAreCopiedTogether) {
  const auto two = [](DeviceKind device) {
    std::vector<Agreed> all = List(Reduce(10), Reduce(12), Reduce(10));
    for (Agreed& each : all) each.entry.request.Edit()->device = device;
    return all;
  };
  EXPECT_EQ(Text(two(DeviceKind::kHost), kMiB, 3), "0|1|2");
  EXPECT_EQ(Text(two(DeviceKind::kGpu), kMiB, 3), "0 2|1");
  EXPECT_EQ(Text(two(DeviceKind::kGpu), kMiB, 4), "0 1 2");
  EXPECT_EQ(Text(two(DeviceKind::kGpu), kMiB, 0), "0|1|2");
}

TEST(WhatIsLargeTravelsAlone) {
  const auto two = [] { return List(Reduce(10), Reduce(12), Reduce(10)); };
  EXPECT_EQ(Text(two(), kMiB, 48), "0 2|1");
  EXPECT_EQ(Text(two(), kMiB, 49), "0 1 2");
  EXPECT_EQ(Text(two(), kMiB, 0), "0|1|2");
}

TEST(FusesUpToTheThreshold) {
  const auto four = [] { return List(Reduce(10), Reduce(10), Reduce(10), Reduce(10)); };
  EXPECT_EQ(Text(four(), 160), "0 1 2 3");
  EXPECT_EQ(Text(four(), 159), "0 1 2|3");
  EXPECT_EQ(Text(four(), 80), "0 1|2 3");
  EXPECT_EQ(Text(four(), 79), "0|1|2|3");
  EXPECT_EQ(Text(four(), 0), "0|1|2|3");
}

TEST(APlanSaysWhatItCarries) {
  Agreed a = Reduce(3, DType::kFloat16);
  a.entry.request.Edit()->reduction = {ReduceOp::kAverage, 0.5, 1.0};
  a.entry.request.Edit()->key.process_set = 4;
  Agreed b = Reduce(5, DType::kFloat16);
  b.entry.request.Edit()->reduction = a.entry.request->reduction;
  b.entry.request.Edit()->key.process_set = 4;
  const auto plans = MakePlans(List(std::move(a), std::move(b)), {kMiB});
  ASSERT_EQ(plans.size(), size_t{1});
  EXPECT_EQ(plans[0].bytes, int64_t{16});
  EXPECT_EQ(plans[0].process_set, 4);
  EXPECT_TRUE(plans[0].dtype == DType::kFloat16);
  EXPECT_TRUE(plans[0].reduction == (Reduction{ReduceOp::kAverage, 0.5, 1.0}));
  EXPECT_EQ(plans[0].pieces[0].bytes, int64_t{6});
  EXPECT_EQ(plans[0].pieces[1].bytes, int64_t{10});
}

TEST(LargeOnesTravelAlone) {
  const int64_t large = kMiB / 4;  // floats
  EXPECT_EQ(Text(List(Reduce(1), Reduce(large), Reduce(1)), 128 * kMiB), "0 2|1");
  EXPECT_EQ(Text(List(Reduce(large), Reduce(large)), 128 * kMiB), "0|1");
  EXPECT_EQ(Text(List(Reduce(1), Reduce(large - 1)), 128 * kMiB), "0 1");
  // Larger than the threshold: alone, and what is small still meets.
  EXPECT_EQ(Text(List(Reduce(1), Reduce(100), Reduce(1)), 50), "0 2|1");
}

TEST(OnlyEqualReductionsAreFused) {
  Agreed average = Reduce(1);
  average.entry.request.Edit()->reduction.op = ReduceOp::kAverage;
  Agreed scaled = Reduce(1);
  scaled.entry.request.Edit()->reduction.prescale = 2.0;
  Agreed other_set = Reduce(1);
  other_set.entry.request.Edit()->key.process_set = 1;
  EXPECT_EQ(Text(List(Reduce(1), Reduce(1, DType::kInt32), std::move(average), std::move(scaled),
                      std::move(other_set), Reduce(1)),
                 kMiB),
            "0 5|1|2|3|4");
}

TEST(BroadcastsOfOneRootAreFusedWhateverTheirType) {
  Agreed from_one = Of(Collective::kBroadcast, {{DType::kFloat32, {1}}});
  from_one.entry.request.Edit()->root = 1;
  EXPECT_EQ(Text(List(Of(Collective::kBroadcast, {{DType::kFloat32, {1}}}), std::move(from_one),
                      Of(Collective::kBroadcast, {{DType::kInt64, {1}}})),
                 kMiB),
            "0 2|1");
}

TEST(OthersAreNotFused) {
  for (Collective kind : {Collective::kBarrier, Collective::kAllToAll}) {
    EXPECT_EQ(
        Text(List(Of(kind, {{DType::kFloat32, {1}}}), Of(kind, {{DType::kFloat32, {1}}})), kMiB),
        "0|1");
  }
}

TEST(ABarrierIsOnePlanWithoutBytes) {
  const auto plans = MakePlans(List(Of(Collective::kBarrier, {})), {kMiB});
  ASSERT_EQ(plans.size(), size_t{1});
  EXPECT_TRUE(plans[0].kind == Collective::kBarrier);
  EXPECT_EQ(plans[0].bytes, int64_t{0});
  EXPECT_EQ(plans[0].pieces.size(), size_t{1});
}

TEST(TensorsOfAGroupAreFusedLikeOthers) {
  const TensorSpec f{DType::kFloat32, {2}};
  const TensorSpec i{DType::kInt32, {2}};
  EXPECT_EQ(Text(List(Reduce(1), Of(Collective::kAllReduce, {f, i, f})), kMiB), "0 1 1.2|1.1");
  EXPECT_EQ(Text(List(Of(Collective::kAllReduce, {f, f, f})), 16), "0 0.1|0.2");
}

TEST(ZeroElementsFitAnywhere) {
  EXPECT_EQ(Text(List(Reduce(2), Reduce(0), Reduce(0)), 8), "0 1 2");
  EXPECT_EQ(Text(List(Reduce(0), Reduce(0)), 0), "0 1");
}

TEST(AnAllGatherCountsAllRanksParts) {
  EXPECT_EQ(TotalBytes(Gather({1, 2, 0}, 2, 5), 0), int64_t{60});
  EXPECT_EQ(Text(List(Gather({1, 2, 0}, 0, 5), Gather({1, 0, 0}, 0, 5)), 80), "0 1");
  EXPECT_EQ(Text(List(Gather({1, 2, 0}, 0, 5), Gather({1, 0, 0}, 0, 5)), 79), "0|1");
}

TEST(MoreThanAnIntegerOf32BitsInOneTensor) {
  const auto plans = MakePlans(List(Reduce(int64_t{3} << 30)), {kMiB});
  ASSERT_EQ(plans.size(), size_t{1});
  EXPECT_EQ(plans[0].bytes, int64_t{12} << 30);
}

// Ranks know different shapes of the same allgather: their own. The plans must not depend on it.
TEST(EveryRankPlansAlike) {
  std::mt19937 random(3);
  const auto below = [&random](uint32_t n) { return static_cast<int64_t>(random() % n); };
  for (int round = 0; round < 500; ++round) {
    constexpr size_t kRanks = 3;
    std::vector<std::vector<Agreed>> by_rank(kRanks);
    for (int64_t n = below(12); n >= 0; --n) {
      const int64_t floats = below(4) == 0 ? kMiB / 4 - 1 + below(3) : below(100);
      const std::vector<int64_t> dims = {below(50), below(300000), below(2) * 50};
      const bool gather = below(2) == 0;
      for (size_t r = 0; r < kRanks; ++r) {
        by_rank[r].push_back(gather ? Gather(dims, r) : Reduce(floats));
      }
    }
    const int64_t threshold = below(3) == 0 ? below(1000) : 128 * kMiB;
    const std::string plans = Text(by_rank[0], threshold);
    for (const auto& agreed : by_rank) EXPECT_EQ(Text(agreed, threshold), plans);
  }
}

// The parts of complex numbers are added like any others, together with these.
TEST(ComplexNumbersTravelWithNumbersOfTheirParts) {
  std::vector<Agreed> agreed;
  agreed.push_back(Of(Collective::kAllReduce, {{DType::kFloat32, {3}}, {DType::kComplex64, {2}}}));
  const std::vector<Plan> plans = MakePlans(agreed, {kMiB});
  ASSERT_EQ(plans.size(), size_t{1});
  EXPECT_TRUE(plans[0].dtype == DType::kFloat32);
  EXPECT_EQ(plans[0].bytes, int64_t{3 * 4 + 2 * 8});
}

// Whatever is agreed, every tensor travels exactly once, and no fused plan is above the threshold.
TEST(EveryTensorTravelsOnce) {
  std::mt19937 random(4);
  for (int round = 0; round < 500; ++round) {
    std::vector<Agreed> agreed;
    size_t tensors = 0;
    for (uint32_t n = random() % 20; n > 0; --n) {
      std::vector<TensorSpec> specs(1 + random() % 3);
      for (TensorSpec& spec : specs) {
        spec = {static_cast<DType>(random() % kNumDTypes), {static_cast<int64_t>(random() % 400)}};
      }
      tensors += specs.size();
      agreed.push_back(
          Of(random() % 2 == 0 ? Collective::kAllReduce : Collective::kBroadcast, specs));
    }
    const auto threshold = static_cast<int64_t>(random() % 3000);
    std::vector<std::pair<int, int>> seen;
    int last_first = -1;
    for (const Plan& plan : MakePlans(agreed, {threshold})) {
      int64_t bytes = 0;
      for (const Piece& p : plan.pieces) {
        seen.emplace_back(p.agreed, p.tensor);
        bytes += p.bytes;
      }
      EXPECT_EQ(bytes, plan.bytes);
      EXPECT_TRUE(plan.pieces.size() == 1 || bytes <= threshold);
      EXPECT_TRUE(plan.pieces[0].agreed >= last_first);  // in order of their first pieces
      last_first = plan.pieces[0].agreed;
    }
    std::sort(seen.begin(), seen.end());
    EXPECT_EQ(seen.size(), tensors);
    EXPECT_TRUE(std::adjacent_find(seen.begin(), seen.end()) == seen.end());
  }
}

}  // namespace
}  // namespace tfhvd

TEST_MAIN()
