// Which gradients are out of proportion: steps that are drawn at random, clean and with faults.
#include "cc/observe/outliers.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "cc/observe/finite_watch.h"
#include "tests/core/testing.h"

namespace tfhvd {
namespace {

using Sizes = std::vector<GradientSize>;

constexpr int kRanks = 3;
constexpr int kLayers = 5;  // of a kernel and a bias each

// The gradients of a training: each has a size of its own, and a long tail.
class Training {
 public:
  explicit Training(uint32_t seed) : random_(seed) {
    for (float& size : sizes_) size = 3 * Normal();
  }

  // The next step of all ranks. Their sizes drift; batches are strange at times, and a learning
  // rate that is too high makes all gradients large.
  std::vector<Sizes> Next() {
    ++step_;
    for (float& size : sizes_) size += 0.02f * Normal();
    const float jump = step_ % 1000 < 40 ? static_cast<float>(step_ % 1000) * 0.3f : 0.0f;
    std::vector<Sizes> ranks(kRanks, Sizes(2 * kLayers));
    for (Sizes& own : ranks) {
      const float strange = Uniform() < 0.004f ? 10.0f * Uniform() : 0.0f;
      const float batch = 0.15f / std::sqrt(Uniform());
      for (size_t i = 0; i < own.size(); ++i) {
        // Strange batches are so in some layers more than in others.
        const float tail = batch + tail_(random_) + strange * (0.5f + Uniform());
        own[i] = {static_cast<int64_t>(i / 2), sizes_[i] + 0.3f * Normal() + tail + jump, 0, true};
        own[i].largest = own[i].norm - 3.0f + 0.3f * Normal();
      }
    }
    return ranks;
  }

 private:
  float Normal() { return normal_(random_); }
  float Uniform() { return std::uniform_real_distribution<float>(1e-3f, 1.0f)(random_); }

  std::mt19937 random_;
  std::normal_distribution<float> normal_;
  std::exponential_distribution<float> tail_{3.0f};
  float sizes_[2 * kLayers];
  int64_t step_ = 0;
};

Accused VerdictOf(const std::vector<Sizes>& step, const std::vector<SizeHistory>& histories) {
  Votes together{};
  for (size_t rank = 0; rank < step.size(); ++rank) {
    const Votes own = VoteOf({}, static_cast<int>(rank), histories[rank].Judge(step[rank]));
    for (size_t i = 0; i < together.size(); ++i) together[i] += own[i];
  }
  return OutlierOf(together);
}

// The gradients of a layer of a rank, all of them, or the first one's largest value alone.
void Multiply(float power, bool all, Sizes* sizes, size_t layer) {
  for (size_t i = 2 * layer; i < 2 * layer + (all ? 2 : 1); ++i) {
    (*sizes)[i].largest += power;
    (*sizes)[i].norm =
        all ? (*sizes)[i].norm + power : std::max((*sizes)[i].norm, (*sizes)[i].largest);
  }
}

TEST(CleanStepsAreNotNamedAndFaultsAre) {
  int named = 0;
  int flipped = 0;
  int faults = 0;
  for (uint32_t seed = 0; seed < 5; ++seed) {
    Training training(seed);
    std::vector<SizeHistory> histories(kRanks);
    for (int number = 0; number < 20000; ++number) {
      const std::vector<Sizes> step = training.Next();
      EXPECT_EQ(VerdictOf(step, histories).rank, int64_t{-1});
      if (number % 1000 == 500) {
        const auto rank = static_cast<size_t>(number / 1000 % kRanks);
        const auto layer = static_cast<size_t>(number / 1000 % kLayers);
        for (const bool all : {true, false}) {
          std::vector<Sizes> wrong = step;
          Multiply(all ? std::log2(100.0f) : 128.0f, all, &wrong[rank], layer);
          const Accused accused = VerdictOf(wrong, histories);
          const bool right = accused.rank == static_cast<int64_t>(rank) &&
                             accused.gradient / 2 == static_cast<int64_t>(layer);
          (all ? named : flipped) += right ? 1 : 0;
        }
        ++faults;
      }
      for (size_t rank = 0; rank < kRanks; ++rank) histories[rank].Add(step[rank]);
    }
  }
  std::printf("of %d: times 100 %d, highest bit of an exponent %d\n", faults, named, flipped);
  EXPECT_TRUE(named * 10 >= faults * 7);
  EXPECT_EQ(flipped, faults);
}

// Steps in which all is as ever, so that each rule shows alone.
class Still {
 public:
  Still() {
    for (int i = 0; i < 20; ++i) {
      for (size_t rank = 0; rank < kRanks; ++rank) histories_[rank].Add(step_[rank]);
    }
  }
  Sizes& operator[](size_t rank) { return step_[rank]; }
  Accused verdict() const { return VerdictOf(step_, histories_); }

 private:
  std::vector<Sizes> step_{kRanks, Sizes{{0, 0, -3}, {0, -2, -3}, {1, 1, -3}, {2, -20, -22}}};
  std::vector<SizeHistory> histories_{kRanks};
};

TEST(OneLayerOfOneRankIsNamed) {
  Still step;
  EXPECT_EQ(step.verdict().rank, int64_t{-1});
  Multiply(6.6f, true, &step[2], 0);
  EXPECT_EQ(step.verdict().rank, int64_t{2});
  EXPECT_EQ(step.verdict().gradient, int64_t{0});
}

TEST(AnotherLayerOrRankThatIsUnusualMakesItDoubtful) {
  Still layer;
  Multiply(6.6f, true, &layer[1], 0);
  layer[1][2].norm += 1.5f;
  EXPECT_EQ(layer.verdict().rank, int64_t{-1});
  Still rank;
  Multiply(6.6f, true, &rank[1], 0);
  rank[0][3].norm += 1.5f;
  EXPECT_EQ(rank.verdict().rank, int64_t{-1});
  Still two;
  Multiply(6.6f, true, &two[1], 0);
  Multiply(6.6f, true, &two[2], 0);
  EXPECT_EQ(two.verdict().rank, int64_t{-1});
}

TEST(WhatIsZeroButForRoundingHasAnySize) {
  Still step;
  step[0][3] = {2, -11.0f, -13.0f};
  EXPECT_EQ(step.verdict().rank, int64_t{-1});
  step[0][3] = {2, 5.0f, 5.0f};
  EXPECT_EQ(step.verdict().gradient, int64_t{3});
}

// A batch whose inputs are 100 times as large makes the first layer's kernel large, and not its
// bias.
TEST(AKernelWithoutItsBiasIsNoFault) {
  Still step;
  step[2][0].norm += 6.6f;
  step[2][0].largest += 6.6f;
  EXPECT_EQ(step.verdict().rank, int64_t{-1});
  std::vector<SizeHistory> histories(1);
  std::vector<Sizes> last = {{{0, 0, -3}, {1, 0, -3}, {1, -2, -3}}};
  for (int i = 0; i < 20; ++i) histories[0].Add(last[0]);
  last[0][1] = {1, 6.6f, 3.6f};
  EXPECT_EQ(VerdictOf(last, histories).rank, int64_t{-1});
  last[0][2] = {1, 1.3f, 0.3f};  // as seen in a model whose other layers are saturated
  EXPECT_EQ(VerdictOf(last, histories).rank, int64_t{-1});
  last[0][2] = {1, 4.6f, 3.6f};
  EXPECT_EQ(VerdictOf(last, histories).gradient, int64_t{1});
  Still alone;  // in its layer
  alone[2][2].norm += 6.6f;
  alone[2][2].largest += 6.6f;
  EXPECT_EQ(alone.verdict().gradient, int64_t{2});
}

// One value of the first layer may be a strange batch's, unless it is absurd.
TEST(OneValueOfTheFirstLayerIsAFaultOnlyIfItIsAbsurd) {
  Still step;
  Multiply(12.0f, false, &step[1], 0);
  EXPECT_EQ(step.verdict().rank, int64_t{-1});
  Multiply(12.0f, false, &step[1], 0);
  EXPECT_EQ(step.verdict().rank, int64_t{1});
  EXPECT_EQ(step.verdict().gradient, int64_t{0});
  Still later;
  Multiply(12.0f, false, &later[1], 1);
  EXPECT_EQ(later.verdict().gradient, int64_t{2});
}

// A model that has learned all: hardly a batch has gradients, and those that have are far above.
TEST(AGradientThatWasZeroLatelyIsNotNamed) {
  std::vector<SizeHistory> histories(kRanks);
  const Sizes spike = {{0, -3, -5}, {0, -4, -6}, {1, -30, -31}, {2, -30, -31}};
  for (int number = 0; number < 1000; ++number) {
    std::vector<Sizes> step(kRanks, Sizes{{0}, {0}, {1}, {2}});
    if (number % 50 == 49) step[0] = spike;
    EXPECT_EQ(VerdictOf(step, histories).rank, int64_t{-1});
    for (size_t rank = 0; rank < kRanks; ++rank) histories[rank].Add(step[rank]);
    if (number % 50 == 49 && number > 100) {
      step[1] = spike;
      Multiply(128.0f, false, &step[1], 1);
      EXPECT_EQ(VerdictOf(step, histories).rank, int64_t{1});
      EXPECT_EQ(VerdictOf(step, histories).gradient, int64_t{2});
    }
  }
}

TEST(NothingIsSaidOfWhatIsNotKnown) {
  std::vector<SizeHistory> histories(1);
  std::vector<Sizes> step = {{{0, 0, -3}, {1, 1, -3}}};
  for (int i = 0; i < SizeHistory::kFewest; ++i) {
    EXPECT_EQ(histories[0].Judge(step[0]).above, kUnknown);
    histories[0].Add(step[0]);
  }
  EXPECT_EQ(histories[0].Judge(step[0]).above, 0.0f);
  step[0][0].whole = false;  // from now on a sample of it is looked at
  EXPECT_EQ(histories[0].Judge(step[0]).above, kUnknown);
  step[0][0] = {0};  // and zeros say nothing
  EXPECT_EQ(histories[0].Judge(step[0]).above, 0.0f);
}

TEST(AnErrorNamesRankAndVariableOnAllRanks) {
  for (int rank = 0; rank < 2; ++rank) {
    FiniteWatch watch(OnNotFinite::kWarn, OnOutlier::kRaise, Log(LogLevel::kFatal, 0), rank);
    const SharedGradients gradients = {"loop", {"a/kernel", "b/kernel"}, false, 0, "a of 2"};
    Votes votes = VoteOf({}, 1, {1, 6.6f});
    const Status status = watch.StepOver(gradients, {}, votes, nullptr);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_TRUE(status.message().find("the gradient of b/kernel on rank 1 is far larger than "
                                      "before in update 1 of loop") != std::string::npos);
    votes[kVoteUnusual] = 1.5f;
    EXPECT_OK(watch.StepOver(gradients, {}, votes, nullptr));
  }
}

}  // namespace
}  // namespace tfhvd

TEST_MAIN()
