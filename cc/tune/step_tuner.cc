#include "cc/tune/step_tuner.h"

#include <algorithm>
#include <cmath>

namespace tfhvd {
namespace {

// The approximate length of a block, so that a slow moment of the machine affects both blocks of a
// pair; and the least number of steps in a block.
constexpr double kBlockSeconds = 0.25;
constexpr int64_t kFewestSteps = 10;
constexpr int64_t kMostSteps = 256;
// The steps of a block that are not measured: the first has no measured beginning, and the next
// ones find memory as the other settings left it.
constexpr int64_t kFirstSteps = 3;

// After so many blocks in a row that end early, the program repeats no step for long enough to
// measure it.
constexpr int kMostSpoilt = 20;

// A change of one setting may make a change of another worth while; more rounds than these do not
// help.
constexpr int kMostRounds = 2;

// The factor of one step of the search.
constexpr int64_t kFactor = 4;

struct Range {
  int64_t StepSettings::* of_step;
  int64_t FusionLimits::* of_fusion;
  int64_t least;
  int64_t most;

  int64_t& In(StepSettings* settings) const {
    return of_step != nullptr ? settings->*of_step : settings->fusion.*of_fusion;
  }
};

// In the order in which they are tried.
constexpr Range kRanges[] = {
    {&StepSettings::bucket_bytes, nullptr, 64 << 10, 1 << 30},
    {nullptr, &FusionLimits::alone_from, 16 << 10, 256 << 20},
    {nullptr, &FusionLimits::threshold, 64 << 10, 1 << 30},
};

// Moves the setting by a factor; returns whether it could be moved.
bool Move(const Range& range, bool up, StepSettings* settings) {
  int64_t& value = range.In(settings);
  if (up ? value >= range.most : value <= range.least) return false;
  value = up ? std::max(value * kFactor, range.least) : std::min(value / kFactor, range.most);
  value = std::clamp(value, range.least, range.most);
  return true;
}

}  // namespace

StepTuner::StepTuner(const StepSettings& given, const std::optional<StepSettings>& remembered)
    : given_(given), remembered_(remembered), incumbent_(given) {}

// The two of a pair take turns in being the first.
bool StepTuner::challenger_runs() const { return (test_.pairs() + spoilt_ + block_) % 2 == 1; }

StepTuner::Block StepTuner::Next(const OutcomeOf& outcome_of) {
  if (!done() && !challenger_.has_value()) Propose(outcome_of);
  if (done()) return {incumbent_, 0};
  int64_t steps = kFewestSteps;
  if (step_seconds_ > 0) {
    const double wanted = std::ceil(kBlockSeconds / step_seconds_);
    steps = static_cast<int64_t>(
        std::clamp(wanted, static_cast<double>(kFewestSteps), static_cast<double>(kMostSteps)));
  }
  return {challenger_runs() ? *challenger_ : incumbent_, kFirstSteps + steps};
}

// Proposes the next challenger, or ends the search.
void StepTuner::Propose(const OutcomeOf& outcome_of) {
  const auto differ = [&outcome_of](const StepSettings& a, const StepSettings& b) {
    return a != b && outcome_of(a) != outcome_of(b);
  };
  if (stage_ == Stage::kRemembered) {
    stage_ = Stage::kDefaults;
    if (remembered_.has_value() && differ(*remembered_, given_)) {
      stage_ = Stage::kRemembered;
      return Challenge(*remembered_);
    }
  }
  if (stage_ == Stage::kDefaults) {
    stage_ = Stage::kSearch;
    if (differ(StepSettings(), given_)) return Challenge(StepSettings());
  }
  if (stage_ == Stage::kSearch) {
    if (ProposeMove(outcome_of)) return;
    stage_ = Stage::kConfirm;
    if (differ(incumbent_, given_)) return Challenge(std::exchange(incumbent_, given_));
  }
  Finish(given_, "nothing is faster");
}

bool StepTuner::ProposeMove(const OutcomeOf& outcome_of) {
  const Outcome now = outcome_of(incumbent_);
  while (true) {
    for (; move_ < kMoves; ++move_, moved_here_ = false) {
      const bool up = move_ % 2 == 0;
      StepSettings settings = incumbent_;
      while (Move(kRanges[move_ / 2], up, &settings)) {
        if (outcome_of(settings) == now) continue;
        if (WasRefused(settings)) break;
        Challenge(settings);
        return true;
      }
      if (up && moved_here_) ++move_;  // the downward move would only undo this one
    }
    if (!moved_ || ++round_ >= kMostRounds) return false;
    moved_ = false;
    move_ = 0;
  }
}

// Returns whether this challenger has been compared with the incumbent before.
bool StepTuner::WasRefused(const StepSettings& challenger) const {
  return std::find(refused_.begin(), refused_.end(), std::pair(incumbent_, challenger)) !=
         refused_.end();
}

void StepTuner::Challenge(const StepSettings& challenger) {
  challenger_ = challenger;
  test_ = PairedTest();
  block_ = 0;
  spoilt_ = 0;
}

void StepTuner::Ended(bool late, double step_seconds) {
  if (!challenger_.has_value()) return;  // the search was over
  const bool challenger = challenger_runs();
  // Either the step itself was late, or a moment was slow; a challenger is not worth finding out
  // which.
  if (late && challenger) return Decide(false, "did not fill");
  if (step_seconds <= 0 || late) {
    block_ = 0;
    if (++spoilt_ >= kMostSpoilt) Finish(given_, "the step repeats too rarely to be measured");
    return;
  }
  step_seconds_ = step_seconds;
  seconds_[challenger ? 1 : 0] = step_seconds;
  if (++block_ < 2) return;
  block_ = 0;
  spoilt_ = 0;
  test_.Add(seconds_[1], seconds_[0]);
  const PairedTest::Verdict verdict = test_.verdict();
  if (verdict == PairedTest::Verdict::kOpen) return;
  const bool faster = verdict == PairedTest::Verdict::kFaster;
  Decide(faster, faster ? "faster" : "not faster");
}

void StepTuner::Decide(bool faster, const char* verdict) {
  news_.push_back({incumbent_, *challenger_, test_.pairs(), test_.change(), verdict, false});
  if (faster) {
    incumbent_ = *challenger_;
  } else {
    refused_.emplace_back(incumbent_, *challenger_);
  }
  challenger_.reset();
  switch (stage_) {
    case Stage::kRemembered:
      if (faster) return Finish(incumbent_, "as found before");
      stage_ = Stage::kDefaults;
      return;
    case Stage::kSearch:
      if (faster) {
        moved_ = moved_here_ = true;
      } else if (move_ % 2 == 0 && moved_here_) {
        moved_here_ = false;
        move_ += 2;  // the downward move would only undo this one
      } else {
        moved_here_ = false;
        ++move_;
      }
      return;
    case Stage::kConfirm:
      return Finish(incumbent_, faster ? "found" : "nothing is faster beyond doubt");
    default:
      return;
  }
}

void StepTuner::Finish(const StepSettings& found, const char* verdict) {
  stage_ = Stage::kDone;
  challenger_.reset();
  incumbent_ = found;
  const bool changed = found != given_;
  news_.push_back(
      {given_, found, changed ? test_.pairs() : 0, changed ? test_.change() : 0.0, verdict, true});
}

}  // namespace tfhvd
