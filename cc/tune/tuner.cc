#include "cc/tune/tuner.h"

namespace tfhvd {
namespace {

// A program with more kinds of steps repeats none for long.
constexpr size_t kMostSteps = 64;

}  // namespace

StepTuner::Block Tuner::Next(StepId step, const StepTuner::OutcomeOf& outcome_of) {
  running_ = steps_.find(step);
  if (running_ == steps_.end()) {
    if (steps_.size() >= kMostSteps) steps_.erase(steps_.begin());
    const auto known = remembered_.find(step);
    running_ = steps_
                   .emplace(step, StepTuner(given_, known == remembered_.end()
                                                        ? std::nullopt
                                                        : std::optional(known->second)))
                   .first;
  }
  return running_->second.Next(outcome_of);
}

std::vector<Tuner::News> Tuner::TakeNews() {
  std::vector<News> all;
  for (auto& [step, tuner] : steps_) {
    for (StepTuner::News& news : tuner.TakeNews()) all.push_back({step, std::move(news)});
  }
  return all;
}

}  // namespace tfhvd
