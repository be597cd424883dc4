#include "cc/schedule/known_steps.h"

#include <algorithm>
#include <utility>

namespace tfhvd {
namespace {

// A schedule that ran for so many steps has paid for its end: a round of announcements, or, if a
// bucket did not fill, the time until this was noticed.
constexpr int64_t kWorthwhileSteps = 2;
constexpr int64_t kWorthwhileStepsWhenLate = 16;
constexpr int64_t kMostRepeats = 1 << 20;

// Enough for training, evaluation, and the work between them, of several models.
constexpr size_t kMostSteps = 16;

}  // namespace

// A collective before the first one of a step is not part of the step. A collective between two of
// them, or one that comes twice, shows that the step has changed.
void KnownSteps::Await(CacheId id, Step* step) {
  const bool begun = step->awaited.size() < step->ids.size();
  if (step->awaited.erase(id) == 0 && begun) step->resumable = false;
}

void KnownSteps::Saw(CacheId id) {
  resumed_ = false;
  for (Step& step : steps_) {
    if (step.resumable) Await(id, &step);
  }
  const auto whole = std::find_if(steps_.begin(), steps_.end(), [](const Step& step) {
    return step.resumable && step.awaited.empty();
  });
  if (whole == steps_.end()) return;
  whole->resumable = false;
  resumed_ = true;
  std::rotate(whole, whole + 1, steps_.end());
}

int64_t KnownSteps::Needed(const Ids& ids) const {
  const auto known = std::find_if(steps_.begin(), steps_.end(),
                                  [&ids](const Step& step) { return step.ids == ids; });
  return known == steps_.end() ? kLeastRepeats : known->needed;
}

void KnownSteps::Locked(const std::vector<StepItem>& items, std::vector<Bucket> buckets,
                        CutWith with) {
  if (!std::exchange(resumed_, false)) {
    Step step;
    for (const StepItem& item : items) step.ids.insert(item.id);
    step.items = items;
    const auto known = std::find_if(steps_.begin(), steps_.end(),
                                    [&step](const Step& other) { return other.ids == step.ids; });
    if (known != steps_.end()) {
      step.needed = known->needed;
      steps_.erase(known);
    } else if (steps_.size() == kMostSteps) {
      steps_.erase(steps_.begin());
    }
    steps_.push_back(std::move(step));
  }
  steps_.back().buckets = std::move(buckets);
  steps_.back().with = with;
}

void KnownSteps::Ended(int64_t rounds, bool late) {
  Step& step = steps_.back();
  const auto buckets = static_cast<int64_t>(step.buckets.size());
  const bool paid = rounds / buckets >= (late ? kWorthwhileStepsWhenLate : kWorthwhileSteps);
  step.needed = paid ? kLeastRepeats : std::min(2 * step.needed, kMostRepeats);
  if (rounds % buckets == 0) {
    step.resumable = paid && !late;
    step.awaited = step.ids;
  } else {  // the next collective may be in the middle of a step
    for (Step& each : steps_) each.resumable = false;
  }
}

void KnownSteps::ForgetDoubts() {
  for (Step& step : steps_) {
    if (step.with == CutWith::kDoubt) step.resumable = false;
  }
}

}  // namespace tfhvd
