// What the ranks' votes say of a step, however they are reduced.
#include "cc/observe/finite_watch.h"

#include <limits>
#include <string>
#include <vector>

#include "tests/core/testing.h"

namespace tfhvd {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

SharedGradients Two(bool left_out = false) {
  return {"loop", {"dense/kernel", "dense/bias"}, left_out, 0};
}

FoundNotFinite Bad(int64_t number) { return {number, 1, 3, 0, 12}; }

// The votes of ranks of which some have found something, added up with weights.
Votes Together(const std::vector<FoundNotFinite>& found, const std::vector<float>& weights) {
  Votes sum{};
  for (size_t rank = 0; rank < found.size(); ++rank) {
    const Votes own = VoteOf(found[rank], static_cast<int>(rank));
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += weights[rank] * own[i];
  }
  return sum;
}

FiniteWatch Raising() {
  return FiniteWatch(OnNotFinite::kRaise, OnOutlier::kOff, Log(LogLevel::kFatal, 0), 0);
}

bool Says(const Status& status, const std::string& text) {
  return status.message().find(text) != std::string::npos;
}

TEST(NothingIsSaidOfFiniteGradients) {
  FiniteWatch watch = Raising();
  for (const float weight : {1.0f, 0.25f, 7.0f}) {
    const Votes votes = Together({{}, {}}, {weight, weight});
    EXPECT_OK(watch.StepOver(Two(), {}, votes, nullptr));
    EXPECT_EQ(votes[kVoteOther], 0.0f);
  }
}

TEST(OneRankIsNamedHoweverVotesAreReduced) {
  for (const std::vector<float>& weights : std::vector<std::vector<float>>{
           {1, 1, 1, 1}, {0.25, 0.25, 0.25, 0.25}, {0.1f, 0.2f, 0.3f, 0.4f}, {8, 1, 64, 3}}) {
    FiniteWatch watch = Raising();
    ASSERT_OK(watch.StepOver(Two(), {}, Together({{}, {}, {}, {}}, weights), nullptr));
    const Status status =
        watch.StepOver(Two(), {}, Together({{}, {}, Bad(1), {}}, weights), nullptr);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_TRUE(Says(status,
                     "Gradients of rank 2, first that of dense/bias, are not finite in "
                     "update 2 of loop."));
  }
}

TEST(SeveralRanksAreNotTakenForOneBetweenThem) {
  FiniteWatch watch = Raising();
  const Votes votes = Together({Bad(0), {}, Bad(0)}, {1, 1, 1});
  EXPECT_TRUE(
      Says(watch.StepOver(Two(), Bad(0), votes, nullptr), "Gradients of several ranks are not"));
}

TEST(RanksOfLargeJobsAreToldApart) {
  std::vector<FoundNotFinite> found(4000);
  const std::vector<float> weights(found.size(), 1.0f / 4000);
  for (int rank : {0, 1, 63, 64, 1000, 2047, 3998}) {
    for (int other : {rank + 1, rank + 64 < 4000 ? rank + 64 : 5}) {
      const size_t a = static_cast<size_t>(rank);
      const size_t b = static_cast<size_t>(other);
      found[a] = Bad(0);
      FiniteWatch one = Raising();
      EXPECT_TRUE(Says(one.StepOver(Two(), {}, Together(found, weights), nullptr),
                       "of rank " + std::to_string(rank) + ","));
      found[b] = Bad(0);
      FiniteWatch two = Raising();
      EXPECT_TRUE(
          Says(two.StepOver(Two(), {}, Together(found, weights), nullptr), "of several ranks"));
      found[a] = found[b] = {};
    }
  }
}

TEST(ARankWithoutSamplesHasNoVote) {
  FiniteWatch watch = Raising();
  EXPECT_OK(watch.StepOver(Two(), Bad(0), Together({Bad(0), {}}, {0, 1}), nullptr));
}

TEST(AQuarantineIsNoError) {
  FiniteWatch watch = Raising();
  EXPECT_OK(watch.StepOver(Two(true), Bad(0), Together({Bad(0), {}}, {1, 1}), nullptr));
}

TEST(ThePlaceInTheTrainingIsSaid) {
  FiniteWatch watch = Raising();
  watch.At(3, 17);
  const Status status = watch.StepOver(Two(), Bad(0), Together({Bad(0), {}}, {1, 1}), nullptr);
  EXPECT_TRUE(Says(status, "update 1 of loop, after step 17 of epoch 3."));
}

TEST(NamesAreCountedApart) {
  FiniteWatch watch = Raising();
  ASSERT_OK(watch.StepOver({"other", {}, false, 0}, {}, Together({{}}, {1}), nullptr));
  const Status status =
      watch.StepOver({"loop", {}, false, 0}, Bad(4), Together({Bad(4)}, {1}), nullptr);
  EXPECT_TRUE(Says(status, "first that of variable 4, are not finite in update 1 of loop"));
}

TEST(VotesThatAreNoNumbersThemselvesAreNotTrusted) {
  FiniteWatch watch = Raising();
  Votes votes;
  votes.fill(kNan);
  EXPECT_OK(watch.StepOver(Two(), {}, votes, nullptr));
}

}  // namespace
}  // namespace tfhvd

TEST_MAIN()
