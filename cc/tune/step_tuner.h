// StepTuner: finds better settings for one step that repeats, by trying them while it runs.
//
// The settings in force are the incumbent. Another one, the challenger, takes turns with it, a
// block of steps each, until a test (paired_test.h) says whether the challenger is faster; only
// then it replaces the incumbent. The challengers are, in order: the settings that an earlier job
// found, which end the search if they are faster; the defaults, if the user has set others; and
// each setting in steps of a factor of four, up and down. In the end the result is compared once
// more with the given settings, and dropped unless it is significantly faster. So a job ends with
// the given settings, or with faster ones.
//
// A pure function of its input. Part of Tuner.
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
  // Steps that run with the same settings.
  struct Block {
    StepSettings settings;
    int64_t steps = 0;  // 0: without limit
  };

  // The effect of settings on the step, as any numbers that describe it: settings of equal effect
  // need no comparison.
  using Outcome = std::vector<int64_t>;
  using OutcomeOf = std::function<Outcome(const StepSettings& settings)>;

  // A finished comparison; or, if `done`, the result of the search: then the challenger, which may
  // equal the incumbent, stays in force.
  struct News {
    StepSettings incumbent;
    StepSettings challenger;
    int pairs = 0;
    double change = 0.0;  // see PairedTest
    std::string verdict;  // for people: "faster", "not faster", ...
    bool done = false;
  };

  // `given`: the user's settings, or the defaults. `remembered`: the result of an earlier job, if
  // there is one.
  StepTuner(const StepSettings& given, const std::optional<StepSettings>& remembered);

  // Returns the block to run next, until Ended.
  Block Next(const OutcomeOf& outcome_of);

  // Records the end of the block that Next returned. `step_seconds`: the time per step; 0 if too
  // few steps were measured. `late`: a bucket did not fill, as happens if a program waits for one
  // result of a bucket before it submits the next entry.
  void Ended(bool late, double step_seconds);

  bool done() const { return stage_ == Stage::kDone; }

  // Returns the decisions since the last call.
  std::vector<News> TakeNews() { return std::exchange(news_, {}); }

 private:
  enum class Stage { kRemembered, kDefaults, kSearch, kConfirm, kDone };
  static constexpr int kSettings = 3;
  static constexpr int kMoves = 2 * kSettings;  // each setting up and then down

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
  std::array<double, 2> seconds_ = {};  // of the present pair: the incumbent's, the challenger's
  int block_ = 0;                       // of the present pair: 0 or 1
  int spoilt_ = 0;                      // pairs in a row that could not be measured
  double step_seconds_ = 0.0;           // the last measurement; 0: none yet
  int move_ = 0;
  bool moved_ = false;       // a move of this round was accepted
  bool moved_here_ = false;  // the present move was accepted at least once
  int round_ = 0;
  std::vector<News> news_;
};

}  // namespace tfhvd
