// Agreement: what counts as the same collective, and the text that says who differs and how to mend
// it.
#include "cc/negotiate/agree.h"

#include <string>
#include <vector>

#include "tests/core/testing.h"

namespace tfhvd {
namespace {

using Shapes = std::vector<Shape>;

Request Ask(Collective kind, Shapes shapes = {{2, 3}}, DType dtype = DType::kFloat32) {
  Request q;
  q.key.name = "x";
  q.kind = kind;
  for (Shape& shape : shapes) q.tensors.push_back({dtype, std::move(shape)});
  return q;
}

Decision AgreeOn(const std::vector<Request>& requests) {
  std::vector<const Request*> pointers;
  std::vector<int> ranks;
  for (const Request& q : requests) {
    ranks.push_back(static_cast<int>(ranks.size()));
    pointers.push_back(&q);
  }
  return Agree(pointers, ranks);
}

void ExpectRefused(const std::vector<Request>& requests, const std::string& text) {
  const Decision d = AgreeOn(requests);
  EXPECT_ERROR(d.verdict, StatusCode::kInvalidArgument, text);
  EXPECT_TRUE(d.key == requests[0].key);
  EXPECT_TRUE(d.first_dims.empty());
}

TEST(EqualRequestsAgree) {
  for (int kind = 0; kind < kNumCollectives; ++kind) {
    const Request q = Ask(static_cast<Collective>(kind));
    for (size_t n = 1; n < 5; ++n) {
      const Decision d = AgreeOn(std::vector<Request>(n, q));
      EXPECT_OK(d.verdict);
      EXPECT_TRUE(d.key == q.key);
    }
  }
}

TEST(AFaultOfOneRankIsEverybodysError) {
  const Request good = Ask(Collective::kAllToAll);
  Request bad = good;
  bad.fault = Status::InvalidArgument("alltoall 'x' on rank 1 got splits that do not fit.");
  ExpectRefused({good, bad, good}, bad.fault.message());
  Request also = good;
  also.fault = Status::InvalidArgument("another text");
  ExpectRefused({good, bad, also}, bad.fault.message() + " Ranks [2] have such an error, too.");
  bad.fault = Status::Unavailable("rank 1 has no memory");
  EXPECT_ERROR(AgreeOn({good, bad}).verdict, StatusCode::kUnavailable, "rank 1 has no memory");
}

// Where a tensor has no elements its rows are counted all the same.
TEST(MoreRowsThanCanBeCountedAreRefused) {
  for (const Collective kind : {Collective::kAllGather, Collective::kAllToAll}) {
    Request q = Ask(kind);
    q.tensors = {{DType::kFloat32, {int64_t{1} << 62, 0}}};
    ExpectRefused({q, q},
                  "would move more than a tensor can hold. Received: first dimensions "
                  "[4611686018427387904, 4611686018427387904] from ranks [0, 1], and [0]");
    q.tensors = {{DType::kFloat32, {int64_t{1} << 60, 4, 0}}};
    ExpectRefused({q, q, q, q}, "would move more than a tensor can hold");
    q.tensors = {{DType::kFloat32, {int64_t{1} << 61}}};
    ExpectRefused({q, q}, "would move more than a tensor can hold");
    q.tensors = {{DType::kFloat32, {int64_t{1} << 61, 0}}};
    EXPECT_OK(AgreeOn({q, q}).verdict);
  }
}

// In an elastic job ranks come to a broadcast before and after its root fails.
TEST(ARootThatIsLostIsLostToAll) {
  Request before = Ask(Collective::kBroadcast);
  before.root = kLostRoot;
  const Request after = Ask(Collective::kBroadcast);
  const Decision d = AgreeOn({after, before, after});
  EXPECT_ERROR(d.verdict, StatusCode::kDataLoss, "broadcast 'x' cannot be completed: its root has");
}

TEST(SaysWhichRanksSentWhichShape) {
  const Request a = Ask(Collective::kAllReduce);
  const Request b = Ask(Collective::kAllReduce, {{3, 2}});
  ExpectRefused(
      {a, b, b},
      "Mismatched shapes in allreduce 'x'. Received: rank 0: float32[2, 3]; ranks [1, 2]: "
      "float32[3, 2]. Expected: the same on every rank. Give the tensor one shape on "
      "every rank; for parts of different lengths use allgather.");
}

TEST(SaysWhichRanksSentWhichType) {
  const Request a = Ask(Collective::kBroadcast);
  const Request b = Ask(Collective::kBroadcast, {{2, 3}}, DType::kBFloat16);
  ExpectRefused({a, b, a},
                "Mismatched types in broadcast 'x'. Received: ranks [0, 2]: float32[2, 3]; rank 1: "
                "bfloat16[2, 3]. Expected: the same on every rank. Cast the tensor to one type on "
                "every rank.");
}

TEST(SaysWhichRanksAskedForWhichOperation) {
  ExpectRefused({Ask(Collective::kAllReduce), Ask(Collective::kBarrier, {})},
                "Mismatched operations in the collective 'x'. Received: rank 0: allreduce; rank 1: "
                "barrier. Expected: the same on every rank. Give each collective a name of its own "
                "(name=...), and the same name on every rank.");
}

TEST(HintsAtGradientsThatAreSparseOnSomeRanks) {
  ExpectRefused({Ask(Collective::kAllReduce), Ask(Collective::kAllGather)},
                "pass sparse_as_dense=True.");
}

TEST(AnAllgatherSaysWhoHasJoined) {
  const Request q = Ask(Collective::kAllGather, {{2, 3}});
  const Request none = Ask(Collective::kAllGather, {{0, 3}});
  const Decision d = Agree({&q, &none}, {0, 2}, {1});
  EXPECT_OK(d.verdict);
  EXPECT_EQ(d.first_dims, (std::vector<std::vector<int64_t>>{{2, kJoined, 0}}));
  EXPECT_EQ(d.RowsOfRanks(0), (std::vector<int64_t>{2, 0, 0}));
}

TEST(SaysWhichRanksUseWhichDevice) {
  Request b = Ask(Collective::kAllReduce);
  b.device = DeviceKind::kGpu;
  ExpectRefused(
      {Ask(Collective::kAllReduce), b},
      "Mismatched devices in allreduce 'x'. Received: rank 0: CPU; rank 1: GPU. Expected: "
      "the same on every rank. Place the tensor on the same kind of device on every rank "
      "(tf.device).");
}

TEST(SaysWhichRanksReduceHow) {
  Request b = Ask(Collective::kAllReduce);
  b.reduction = {ReduceOp::kAverage, 0.5, 2.0};
  ExpectRefused({Ask(Collective::kAllReduce), b},
                "Mismatched reductions in allreduce 'x'. Received: rank 0: Sum; rank 1: Average, "
                "prescale_factor=0.5, postscale_factor=2. Expected: the same on every rank. Pass "
                "the same op, prescale_factor and postscale_factor on every rank.");
}

TEST(FactorsThatDifferLookDifferent) {
  Request a = Ask(Collective::kAllReduce);
  Request b = a;
  a.reduction.prescale = 1e-9;
  b.reduction.prescale = 2e-9;
  ExpectRefused({a, b}, "rank 0: Sum, prescale_factor=1e-09; rank 1: Sum, prescale_factor=2e-09.");
  a.reduction.prescale = 0.1;
  b.reduction.prescale = 0.1 + 1e-16;
  ExpectRefused({a, b}, "rank 0: Sum, prescale_factor=0.1; rank 1: Sum, prescale_factor=0.1000000");
}

TEST(SaysWhichRanksNamedWhichRoot) {
  Request b = Ask(Collective::kBroadcast);
  b.root = 1;
  ExpectRefused({Ask(Collective::kBroadcast), b, b},
                "Mismatched root ranks in broadcast 'x'. Received: rank 0: 0; ranks [1, 2]: 1. "
                "Expected: the same on every rank. Pass the same root_rank on every rank.");
}

TEST(NamesTheTensorOfAGroup) {
  const Request a = Ask(Collective::kAllReduce, {{1}, {2}, {3}});
  const Request b = Ask(Collective::kAllReduce, {{1}, {4}, {3}});
  ExpectRefused(
      {a, b},
      "Received: rank 0: tensor 1 of the group, float32[2]; rank 1: tensor 1 of the group, "
      "float32[4].");
}

TEST(NamesTheTensorOfAGroupByItsLabel) {
  Request a = Ask(Collective::kAllReduce, {{1}, {2}, {3}});
  const Request b = Ask(Collective::kAllReduce, {{1}, {4}, {3}});
  a.labels = {"x", "y", "z"};
  ExpectRefused({a, b},
                "Received: rank 0: tensor 1 of the group (y), float32[2]; rank 1: tensor 1 of the "
                "group, float32[4].");
}

// Of equal shapes, they would be added to each other.
TEST(GroupsOfDifferentTensorsDoNotAgree) {
  Request a = Ask(Collective::kAllReduce, {{2}, {2}});
  Request b = a;
  const Request unknown = a;
  a.labels = {"x", "y"};
  b.labels = {"x", "z"};
  EXPECT_OK(AgreeOn({a, a, a}).verdict);
  EXPECT_OK(AgreeOn({a, unknown, b}).verdict);
  ExpectRefused({a, b, b},
                "Mismatched tensors in the group in allreduce 'x'. Received: rank 0: no z; ranks "
                "[1, 2]: no y. Expected: the same on every rank. Compute the same loss on every");
  Request more = Ask(Collective::kAllReduce, {{2}, {2}, {2}});
  more.labels = {"x", "y", "z"};
  ExpectRefused({a, more}, "Received: rank 0: no z; rank 1: all of them.");
  b.labels = {"y", "x"};
  ExpectRefused({a, b},
                "Mismatched orders of the group in allreduce 'x'. Received: rank 0: first x, last "
                "y; rank 1: first y, last x.");
  Request many = Ask(Collective::kAllReduce, Shapes(12, {2}));
  for (char c = 'a'; c < 'm'; ++c) many.labels.emplace_back(1, c);
  a.labels = {"a", "b"};
  ExpectRefused({a, many},
                "rank 0: no c, no d, no e, no f, no g, no h, no i, no j, and 2 more are "
                "missing; rank 1: all of them.");
}

TEST(GroupsOfDifferentLengthDoNotAgree) {
  // The lengths come first, even where a pair of equal length differs in a tensor that a third rank
  // has not got.
  const Request a = Ask(Collective::kAllReduce, {{1}, {2}, {3}});
  const Request b = Ask(Collective::kAllReduce, {{1}, {2}, {4}});
  const Request c = Ask(Collective::kAllReduce, {{1}});
  ExpectRefused({a, b, c},
                "Mismatched numbers of tensors in the group in allreduce 'x'. Received: ranks [0, "
                "1]: 3; rank 2: 1. Expected: the same on every rank. Call the grouped operation "
                "with the same tensors on every rank.");
  ExpectRefused({a, b, Ask(Collective::kAllGather, {})}, "Mismatched operations");
}

TEST(ManyRanksAreListedInShort) {
  std::vector<Request> requests(40, Ask(Collective::kAllReduce));
  requests[39] = Ask(Collective::kAllReduce, {{7}});
  ExpectRefused(requests, "15, ... 39 ranks in all]: float32[2, 3]; rank 39: float32[7].");
}

TEST(AllGatherMayDifferInTheFirstDimension) {
  const Decision d = AgreeOn({Ask(Collective::kAllGather, {{2, 3}, {0}}),
                              Ask(Collective::kAllGather, {{0, 3}, {7}}),
                              Ask(Collective::kAllGather, {{5, 3}, {1}})});
  EXPECT_OK(d.verdict);
  EXPECT_EQ(d.first_dims, (std::vector<std::vector<int64_t>>{{2, 0, 5}, {0, 7, 1}}));
}

TEST(AllGatherMayDifferInNothingElse) {
  const Request a = Ask(Collective::kAllGather, {{2, 3}});
  for (const Shape& shape : Shapes{{2, 4}, {2}, {2, 3, 1}, {}}) {
    ExpectRefused({a, Ask(Collective::kAllGather, {shape})},
                  "rank 1: float32" + ShapeString(shape) +
                      ". Expected: the same on every rank. The tensors of an allgather have at "
                      "least one dimension and may differ in the first one only.");
  }
  ExpectRefused({a, Ask(Collective::kAllGather, {{2, 3}}, DType::kInt8)}, "Mismatched types");
}

TEST(ScalarsCannotBeGathered) {
  for (size_t n = 1; n < 4; ++n) {
    ExpectRefused(std::vector<Request>(n, Ask(Collective::kAllGather, {{}})),
                  "allgather 'x' got a scalar. Expected: at least one dimension, along which the "
                  "ranks' tensors are joined or cut; use tf.reshape(x, [1]).");
  }
}

TEST(ScalarsCanBeReducedAndBroadcast) {
  EXPECT_OK(
      AgreeOn({Ask(Collective::kAllReduce, {{}}), Ask(Collective::kAllReduce, {{}})}).verdict);
  EXPECT_OK(
      AgreeOn({Ask(Collective::kBroadcast, {{}}), Ask(Collective::kBroadcast, {{}})}).verdict);
}

TEST(ComplexNumbersAreAddedOnly) {
  for (int op = 0; op < kNumReduceOps; ++op) {
    Request q = Ask(Collective::kAllReduce, {{4}}, DType::kComplex64);
    q.reduction.op = static_cast<ReduceOp>(op);
    if (q.reduction.op == ReduceOp::kSum || q.reduction.op == ReduceOp::kAverage) {
      EXPECT_OK(AgreeOn({q, q}).verdict);
    } else {
      ExpectRefused({q, q}, "allreduce 'x': complex tensors are reduced by Sum or Average.");
    }
  }
  Request adasum = Ask(Collective::kAdasum, {{4}}, DType::kComplex128);
  ExpectRefused({adasum, adasum}, "Received: complex128");
}

TEST(BoolIsReducedByMinAndMaxOnly) {
  for (int op = 0; op < kNumReduceOps; ++op) {
    Request q = Ask(Collective::kAllReduce, {{4}}, DType::kBool);
    q.reduction.op = static_cast<ReduceOp>(op);
    if (q.reduction.op == ReduceOp::kMin || q.reduction.op == ReduceOp::kMax) {
      EXPECT_OK(AgreeOn({q, q}).verdict);
      q.reduction.prescale = 2.0;
      ExpectRefused({q, q}, "allreduce 'x': bool tensors cannot be scaled.");
    } else {
      ExpectRefused({q, q}, std::string("op=") + ReduceOpName(q.reduction.op));
    }
  }
  EXPECT_OK(AgreeOn({Ask(Collective::kBroadcast, {{4}}, DType::kBool)}).verdict);
}

TEST(TheRootIsARankOfTheSet) {
  for (int size = 1; size < 4; ++size) {
    for (int root : {-1, 0, size - 1, size}) {
      Request q = Ask(Collective::kBroadcast);
      q.root = root;
      const std::vector<Request> requests(static_cast<size_t>(size), q);
      std::vector<int> ranks;
      for (int r = 0; r < size; ++r) ranks.push_back(r);
      if (root >= 0 && root < size) {
        EXPECT_OK(AgreeOn(requests).verdict);
      } else {
        ExpectRefused(requests, "Received: root_rank=" + std::to_string(root) +
                                    ". Expected: one of the ranks " + RankList(ranks));
      }
    }
  }
}

TEST(OnlyABarrierHasNoTensors) {
  EXPECT_OK(AgreeOn({Ask(Collective::kBarrier, {}), Ask(Collective::kBarrier, {})}).verdict);
  ExpectRefused({Ask(Collective::kAllReduce, {}), Ask(Collective::kAllReduce, {})},
                "allreduce 'x' got no tensors");
}

TEST(RanksAreThoseOfTheWorld) {
  const Request a = Ask(Collective::kAllReduce);
  const Request b = Ask(Collective::kAllReduce, {{1}});
  EXPECT_CONTAINS(Agree({&a, &b}, {3, 8}).verdict.message(),
                  "rank 3: float32[2, 3]; rank 8: float32[1]");
}

}  // namespace
}  // namespace tfhvd

TEST_MAIN()
