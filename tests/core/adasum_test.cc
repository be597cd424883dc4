// Adasum against the formula, on 1 to 8 ranks as threads.
#include "cc/collectives/adasum.h"

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "cc/numeric/half.h"
#include "tests/core/on_ranks.h"
#include "tests/core/testing.h"

namespace tfhvd {
namespace {

using Vector = std::vector<double>;

// Small whole numbers, which every type holds.
Vector ValuesOf(int rank, int64_t count) {
  std::mt19937 random(static_cast<unsigned>(rank + 1));
  Vector v;
  for (int64_t i = 0; i < count; ++i) v.push_back(static_cast<int>(random() % 9) - 4);
  return v;
}

double Dot(const Vector& a, const Vector& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

Vector Pair(const Vector& a, const Vector& b) {
  Vector out;
  const double ab = Dot(a, b);
  for (size_t i = 0; i < a.size(); ++i) {
    const double x = Dot(a, a) == 0 ? a[i] : a[i] * (1 - ab / (2 * Dot(a, a)));
    const double y = Dot(b, b) == 0 ? b[i] : b[i] * (1 - ab / (2 * Dot(b, b)));
    out.push_back(x + y);
  }
  return out;
}

Status RunAdasum(Communicator* comm, const void* in, void* out, int64_t count, DType dtype,
                 const Reduction& scales) {
  AdasumMemory memory;
  EXPECT_OK(memory.Reserve(count, dtype, comm->rank(), comm->size()));
  return Adasum(comm, in, out, count, dtype, scales, &memory);
}

Vector Tree(std::vector<Vector> level) {
  while (level.size() > 1) {
    std::vector<Vector> next;
    for (size_t i = 0; i < level.size(); i += 2) {
      next.push_back(i + 1 < level.size() ? Pair(level[i], level[i + 1]) : level[i]);
    }
    level = std::move(next);
  }
  return level[0];
}

TEST(FollowsTheFormulaInATree) {
  for (int size = 1; size <= 8; ++size) {
    for (int64_t count : {0, 1, 5, 1000}) {
      testing::OnRanks(size, [&](Communicator* comm) {
        std::vector<Vector> all;
        for (int r = 0; r < size; ++r) all.push_back(ValuesOf(r, count));
        const Vector expected = Tree(all);
        Vector x = all[static_cast<size_t>(comm->rank())];
        Reduction scales;
        EXPECT_OK(RunAdasum(comm, x.data(), x.data(), count, DType::kFloat64, scales));
        for (size_t i = 0; i < x.size(); ++i) EXPECT_TRUE(std::fabs(x[i] - expected[i]) < 1e-12);
      });
    }
  }
}

TEST(ParallelOnesAreAveragedAndOrthogonalOnesAdded) {
  testing::OnRanks(4, [](Communicator* comm) {
    const float mine = static_cast<float>(comm->rank() + 1);
    std::vector<float> same = {3.0f, -4.0f};
    std::vector<float> own(4, 0.0f);
    own[static_cast<size_t>(comm->rank())] = mine;
    const Reduction scales;
    EXPECT_OK(RunAdasum(comm, same.data(), same.data(), 2, DType::kFloat32, scales));
    EXPECT_OK(RunAdasum(comm, own.data(), own.data(), 4, DType::kFloat32, scales));
    EXPECT_EQ(same, (std::vector<float>{3.0f, -4.0f}));
    EXPECT_EQ(own, (std::vector<float>{1.0f, 2.0f, 3.0f, 4.0f}));
  });
}

TEST(ZerosChangeNothing) {
  testing::OnRanks(3, [](Communicator* comm) {
    std::vector<float> x(3, comm->rank() == 1 ? 2.0f : 0.0f);
    EXPECT_OK(RunAdasum(comm, x.data(), x.data(), 3, DType::kFloat32, Reduction()));
    EXPECT_EQ(x, (std::vector<float>(3, 2.0f)));
  });
}

TEST(HalfTypesAndScales) {
  testing::OnRanks(2, [](Communicator* comm) {
    Reduction scales;
    scales.prescale = 0.5;
    scales.postscale = 4.0;
    std::vector<uint16_t> half = {ToFloat16(comm->rank() == 0 ? 1.0f : 0.0f).bits,
                                  ToFloat16(comm->rank() == 1 ? 3.0f : 0.0f).bits};
    EXPECT_OK(RunAdasum(comm, half.data(), half.data(), 2, DType::kFloat16, scales));
    EXPECT_EQ(ToFloat(Float16{half[0]}), 2.0f);
    EXPECT_EQ(ToFloat(Float16{half[1]}), 6.0f);
    std::vector<uint16_t> brain = {ToBFloat16(5.0f).bits};
    EXPECT_OK(RunAdasum(comm, brain.data(), brain.data(), 1, DType::kBFloat16, scales));
    EXPECT_EQ(ToFloat(BFloat16{brain[0]}), 10.0f);
  });
}

}  // namespace
}  // namespace tfhvd

TEST_MAIN()
