// The search for better settings: plain values in, plain values out; a machine that is a function.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "cc/tune/paired_test.h"
#include "cc/tune/step_tuner.h"
#include "cc/tune/tuner.h"
#include "cc/tune/tuning_files.h"
#include "tests/core/testing.h"

namespace tfhvd {
namespace {

using Verdict = PairedTest::Verdict;

constexpr int64_t kMiB = 1 << 20;

// Where every difference of settings matters.
StepTuner::Outcome AllMatters(const StepSettings& s) {
  return {s.bucket_bytes, s.fusion.threshold, s.fusion.alone_from};
}

StepSettings WithBucket(int64_t bytes) {
  StepSettings settings;
  settings.bucket_bytes = bytes;
  return settings;
}

StepSettings WithThreshold(int64_t bytes) {
  StepSettings settings;
  settings.fusion.threshold = bytes;
  return settings;
}

// Runs blocks on a machine whose steps take `seconds`; how many there were until the end.
int Tune(StepTuner* tuner, const std::function<double(const StepSettings&)>& seconds,
         const StepTuner::OutcomeOf& outcome_of = AllMatters) {
  for (int blocks = 0; blocks < 10000; ++blocks) {
    const StepTuner::Block block = tuner->Next(outcome_of);
    if (block.steps == 0) return blocks;
    tuner->Ended(false, seconds(block.settings));
  }
  return -1;
}

StepSettings Found(StepTuner* tuner) { return tuner->Next(AllMatters).settings; }

TEST(FourPairsThatAgreeShowALargeGain) {
  PairedTest test;
  for (int pair = 0; pair < 4; ++pair) {
    EXPECT_TRUE(test.verdict() == Verdict::kOpen);
    test.Add(0.8 + 0.001 * pair, 1.0);
  }
  EXPECT_TRUE(test.verdict() == Verdict::kFaster);
  EXPECT_TRUE(std::abs(test.change() + 0.2) < 0.01);
}

TEST(TwoPairsShowThatNothingIsGained) {
  PairedTest test;
  test.Add(1.01, 1.0);
  EXPECT_TRUE(test.verdict() == Verdict::kOpen);
  test.Add(1.011, 1.0);
  EXPECT_TRUE(test.verdict() == Verdict::kNotFaster);
}

TEST(AGainBelowOnePercentIsNone) {
  PairedTest test;
  while (test.verdict() == Verdict::kOpen) test.Add(0.995, 1.0);
  EXPECT_TRUE(test.verdict() == Verdict::kNotFaster);
}

TEST(WhereNothingIsGainedATestSaysSoHoweverNoisyTheMachineIs) {
  std::mt19937 random(1);
  for (const double noise : {0.001, 0.02, 0.1, 0.5}) {
    std::normal_distribution<double> times(0.0, noise);
    int faster = 0;
    for (int i = 0; i < 2000; ++i) {
      PairedTest test;
      while (test.verdict() == Verdict::kOpen) {
        test.Add(std::exp(times(random)), std::exp(times(random)));
      }
      faster += test.verdict() == Verdict::kFaster ? 1 : 0;
    }
    EXPECT_TRUE(faster <= 6);
  }
}

TEST(FindsTheBestOfOneSetting) {
  for (const int64_t best : {int64_t{64} << 10, 2 * kMiB, 32 * kMiB, 512 * kMiB}) {
    StepTuner tuner(StepSettings(), std::nullopt);
    const int blocks = Tune(&tuner, [best](const StepSettings& s) {
      return 0.01 * (1.0 + 0.1 * std::abs(std::log2(static_cast<double>(s.bucket_bytes) / best)));
    });
    EXPECT_TRUE(blocks > 0 && blocks < 200);
    EXPECT_TRUE(Found(&tuner) == WithBucket(best));
  }
}

TEST(FindsSettingsThatDependOnEachOther) {
  StepTuner tuner(StepSettings(), std::nullopt);
  EXPECT_TRUE(Tune(&tuner, [](const StepSettings& s) {
                const bool wide = s.bucket_bytes >= 32 * kMiB;
                return wide && s.fusion.alone_from >= 4 * kMiB ? 0.007 : wide ? 0.009 : 0.01;
              }) > 0);
  EXPECT_TRUE(Found(&tuner).bucket_bytes >= 32 * kMiB);
  EXPECT_TRUE(Found(&tuner).fusion.alone_from >= 4 * kMiB);
}

TEST(WhatWasSetWrongIsReplacedByTheDefaults) {
  StepTuner tuner(WithThreshold(0), std::nullopt);
  EXPECT_TRUE(Tune(&tuner, [](const StepSettings& s) {
                return s.fusion.threshold < kMiB ? 0.02 : 0.01;
              }) > 0);
  EXPECT_TRUE(Found(&tuner) == StepSettings());
}

// At the end a step must never take over a hundredth longer than with what was given.
TEST(NeverLosesOnANoisyMachine) {
  for (uint32_t seed = 0; seed < testing::Sweep(300U); ++seed) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<double> unit(0.0, 1.0);
    const double noise = 0.1 * unit(random);
    const double slope = 0.1 * (unit(random) - 0.5);  // of each factor of two of a bucket
    const auto truth = [slope](const StepSettings& s) {
      return std::exp(slope * std::log2(static_cast<double>(s.bucket_bytes) / (8 * kMiB)));
    };
    double load = 1.0;  // comes and goes
    StepTuner tuner(StepSettings(), std::nullopt);
    const int blocks = Tune(&tuner, [&](const StepSettings& s) {
      if (unit(random) < 0.05) load = 1.0 + unit(random);
      return 0.01 * truth(s) * load * (1.0 + noise * unit(random));
    });
    EXPECT_TRUE(blocks >= 0);
    EXPECT_TRUE(truth(Found(&tuner)) <= 1.01);
  }
}

TEST(ABucketThatDoesNotFillIsNotTriedAgain) {
  StepTuner tuner(StepSettings(), std::nullopt);
  int blocks = 0;
  for (; blocks < 1000; ++blocks) {
    const StepTuner::Block block = tuner.Next(AllMatters);
    if (block.steps == 0) break;
    const bool waits = block.settings.bucket_bytes > 8 * kMiB;
    tuner.Ended(waits, waits ? 0.0 : 0.01);
  }
  EXPECT_TRUE(blocks < 1000);
  EXPECT_TRUE(Found(&tuner) == StepSettings());
  const std::vector<StepTuner::News> news = tuner.TakeNews();
  EXPECT_EQ(std::count_if(news.begin(), news.end(),
                          [](const auto& n) { return n.verdict == "did not fill"; }),
            1);
}

TEST(AStepThatIsNeverMeasuredKeepsWhatWasGiven) {
  StepTuner tuner(StepSettings(), std::nullopt);
  const int blocks = Tune(&tuner, [](const StepSettings&) { return 0.0; });
  EXPECT_TRUE(blocks > 0 && blocks < 100);
  EXPECT_TRUE(Found(&tuner) == StepSettings());
  EXPECT_TRUE(tuner.TakeNews().back().done);
}

TEST(ABlockIsLongEnoughAndNotTooLong) {
  for (const double seconds : {0.00001, 0.005, 3.0}) {
    StepTuner tuner(StepSettings(), std::nullopt);
    (void)tuner.Next(AllMatters);
    tuner.Ended(false, seconds);
    const int64_t steps = tuner.Next(AllMatters).steps;
    EXPECT_TRUE(steps >= 10 && steps <= 300);
    EXPECT_TRUE(seconds != 0.005 || steps == 53);  // a quarter of a second, and what is left out
  }
}

TEST(WhatAnEarlierJobFoundIsComparedAndInForceAtOnce) {
  StepTuner tuner(StepSettings(), WithBucket(64 * kMiB));
  const auto machine = [](const StepSettings& s) {
    return s.bucket_bytes == 64 * kMiB ? 0.008 : 0.01;
  };
  const int blocks = Tune(&tuner, machine);
  EXPECT_TRUE(blocks > 0 && blocks <= 10);
  EXPECT_TRUE(Found(&tuner) == WithBucket(64 * kMiB));
}

TEST(WhatAnEarlierJobFoundIsLeftWhereItIsSlowerNow) {
  StepTuner tuner(StepSettings(), WithBucket(64 * kMiB));
  EXPECT_TRUE(Tune(&tuner, [](const StepSettings& s) {
                return s.bucket_bytes > 8 * kMiB ? 0.012 : 0.01;
              }) > 0);
  EXPECT_TRUE(Found(&tuner) == StepSettings());
}

TEST(SettingsThatComeToTheSameAreNotCompared) {
  StepTuner tuner(WithThreshold(5), WithBucket(7));
  EXPECT_EQ(Tune(
                &tuner, [](const StepSettings&) { return 0.01; },
                [](const StepSettings&) { return StepTuner::Outcome(); }),
            0);
  EXPECT_TRUE(Found(&tuner) == WithThreshold(5));
}

TEST(StepsAreTunedApart) {
  Tuner tuner(StepSettings(), {{2, WithBucket(kMiB)}});
  const auto machine = [](StepId step, const StepSettings& s) {
    return (s.bucket_bytes < 8 * kMiB) == (step == 2) ? 0.005 : 0.01;
  };
  for (int turn = 0; turn < 400; ++turn) {
    for (const StepId step : {1, 2}) {
      const StepTuner::Block block = tuner.Next(step, AllMatters);
      tuner.Ended(false, machine(step, block.settings));
    }
  }
  EXPECT_EQ(tuner.Next(1, AllMatters).steps, int64_t{0});
  EXPECT_TRUE(tuner.Next(1, AllMatters).settings.bucket_bytes >= 8 * kMiB);
  EXPECT_TRUE(tuner.Next(2, AllMatters).settings == WithBucket(kMiB));
  EXPECT_TRUE(tuner.TakeNews().size() > 2);
  EXPECT_TRUE(tuner.TakeNews().empty());
}

class Folder {
 public:
  Folder() {
    char name[] = "/tmp/tfhvd_tune_XXXXXX";
    path_ = mkdtemp(name);
  }
  ~Folder() {
    for (const char* name : {"/log.csv", "/deep/memory"}) std::remove((path_ + name).c_str());
    rmdir((path_ + "/deep").c_str());
    rmdir(path_.c_str());
  }
  std::string operator/(const char* name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

std::vector<std::string> LinesOf(const std::string& path) {
  std::vector<std::string> lines;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

TEST(ResultsAreRememberedAndComparisonsLogged) {
  const Folder folder;
  const Log log(LogLevel::kFatal, 0);
  TuningFiles files(folder / "log.csv", folder / "deep/memory", log);
  EXPECT_TRUE(files.Load().empty());
  StepTuner::News compared{StepSettings(), WithBucket(kMiB), 4, -0.123, "faster", false};
  StepTuner::News result = compared;
  result.done = true;
  files.Write({{0xabc, compared}});
  EXPECT_TRUE(files.Load().empty());
  files.Write({{0xabc, result}, {7, {StepSettings(), StepSettings(), 0, 0.0, "nothing", true}}});
  const Tuner::Remembered loaded = files.Load();
  ASSERT_EQ(loaded.size(), size_t{2});
  EXPECT_TRUE(loaded.at(0xabc) == WithBucket(kMiB));
  EXPECT_TRUE(loaded.at(7) == StepSettings());
  const std::vector<std::string> lines = LinesOf(folder / "log.csv");
  ASSERT_EQ(lines.size(), size_t{4});
  EXPECT_EQ(lines[0].substr(0, 28), "step,verdict,change_percent,");
  EXPECT_EQ(lines[1],
            "0000000000000abc,faster,-12.3,4,1048576,134217728,1048576,8388608,134217728,1048576");
}

TEST(ADamagedMemoryIsReadAsFarAsItCanBe) {
  const Folder folder;
  const Log log(LogLevel::kFatal, 0);
  TuningFiles files("", folder / "log.csv", log);
  std::ofstream(folder / "log.csv") << "hello\n12 5 6\n13 5 6 7\n14 -5 6 7\n";
  const Tuner::Remembered loaded = files.Load();
  ASSERT_EQ(loaded.size(), size_t{1});
  EXPECT_EQ(loaded.at(0x13).fusion.alone_from, int64_t{7});
}

}  // namespace
}  // namespace tfhvd

TEST_MAIN()
