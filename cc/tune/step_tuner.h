// StepTuner: finds better settings for one step that repeats, by trying them while it runs.
//
// The settings in force are the incumbent; one other, the challenger, takes turns with them, a
// block of steps each, until a test (paired_test.h) says whether it is faster. Only then it takes
// over. Challengers are those that an earlier job found, tfhvd's own defaults where the user has
// set others, and then each setting in steps of a factor of four, up and down. At the end what was
// found is compared with what was given once more, and given back unless it is faster beyond
// doubt. So a job ends with what it was given, or with what is faster.
//
// A pure function of what it was told. Part of Tuner.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cc/flow/step_settings.h"
#include "cc/tune/paired_test.h"

namespace tfhvd {

class StepTuner {
 public:
  // Steps that are to run with the same settings.
  struct Block {
    StepSettings settings;
    int64_t steps = 0;  // 0: for good
  };

  // What settings come to for the step: two that come to the same need no comparison. Any numbers
  // that say it.
  using Outcome = std::vector<int64_t>;
  using OutcomeOf = std::function<Outcome(const StepSettings& settings)>;

  // A comparison that has ended, or (`done`) the result of all: the challenger, which may be the
  // incumbent, is in force from then on.
  struct News {
    StepSettings incumbent;
    StepSettings challenger;
    int pairs = 0;
    double change = 0.0;  // see PairedTest
    std::string verdict;  // for people: "faster", "not faster", ...
    bool done = false;
  };

  // `given`: by the user, or the defaults; `remembered`: what an earlier job found, if one did.
  StepTuner(const StepSettings& given, const std::optional<StepSettings>& remembered);

  // What is to run next, until Ended.
  Block Next(const OutcomeOf& outcome_of);

  // The block that Next gave has ended. `step_seconds`: how long its steps took, 0 where too few
  // were measured; `late`: a bucket did not fill, as where a program waits for one result of a
  // bucket before it submits the next.
  void Ended(bool late, double step_seconds);

  bool done() const { return stage_ == Stage::kDone; }

  // What has been decided since the last call.
  std::vector<News> TakeNews() { return std::exchange(news_, {}); }

 private:
  enum class Stage { kRemembered, kDefaults, kSearch, kConfirm, kDone };
  static constexpr int kSettings = 3;
  static constexpr int kMoves = 2 * kSettings;  // of each setting, up and then down

  void Propose(const OutcomeOf& outcome_of);
  bool ProposeMove(const OutcomeOf& outcome_of);
  bool WasRefused(const StepSettings& challenger) const;
  void Challenge(const StepSettings& challenger);
  void Decide(bool faster, const char* verdict);
  void Finish(const StepSettings& found, const char* verdict);
  bool challenger_runs() const;

  const StepSettings given_;
  const std::optional<StepSettings> remembered_;

  Stage stage_ = Stage::kRemembered;
  StepSettings incumbent_;
  std::optional<StepSettings> challenger_;
  std::vector<std::pair<StepSettings, StepSettings>> refused_;  // incumbents and challengers
  PairedTest test_;
  std::array<double, 2> seconds_ = {};  // of the pair under way: the incumbent's, the challenger's
  int block_ = 0;                       // of the pair under way: 0 or 1
  int spoilt_ = 0;                      // pairs in a row that could not be measured
  double step_seconds_ = 0.0;           // as measured last; 0: not yet
  int move_ = 0;
  bool moved_ = false;       // a move of this round was accepted
  bool moved_here_ = false;  // the present move was, at least once
  int round_ = 0;
  std::vector<News> news_;
};

}  // namespace tfhvd
