#include "cc/observe/finite_watch.h"

#include <cstdint>

namespace tfhvd {
namespace {

// Returns whether an event deserves a line after `count` events of its kind: the search for a loss
// scale causes some, and a rank that is left out may cause one in each step.
bool IsTold(int64_t count) {
  int64_t power = 1;
  while (power < count) power *= 10;
  return count == power || count <= 3;
}

std::string Called(const SharedGradients& gradients, int64_t at) {
  const bool known = at >= 0 && at < static_cast<int64_t>(gradients.labels.size());
  return known ? gradients.labels[static_cast<size_t>(at)] : "variable " + std::to_string(at);
}

// Describes the gradients of this rank.
std::string Described(const SharedGradients& gradients, const FoundNotFinite& own) {
  std::string text = "the gradient of " + Called(gradients, own.first);
  if (own.nans >= 0) {
    text += " (" + std::to_string(own.nans) + " NaN and " + std::to_string(own.infinities) +
            " infinite of " + std::to_string(own.values) + " values)";
  }
  if (own.gradients == 1) return text + " is not finite";
  return text + " and " + std::to_string(own.gradients - 1) + " more are not finite";
}

// Returns the rank and the variable, if only one rank has such gradients.
std::string Whose(const SharedGradients& gradients, const Votes& together) {
  const Accused accused = WhomOf(together, kVoteOther);
  if (accused.rank < 0) return "of several ranks";
  return "of rank " + std::to_string(accused.rank) + ", first that of " +
         Called(gradients, accused.gradient) + ",";
}

}  // namespace

void FiniteWatch::At(int64_t epoch, int64_t step) {
  MutexLock lock(&mutex_);
  epoch_ = epoch;
  step_ = step;
}

std::string FiniteWatch::Consequence(const SharedGradients& gradients) const {
  if (gradients.left_out) return " The rank has no part in that update.";
  if (action_ == OnNotFinite::kRaise) return "";
  return " The weights of all ranks are no better after it, unless the program leaves the update "
         "out. quarantine=True of the optimizer or the tape leaves such a rank out; "
         "TFHVD_ON_NOT_FINITE=raise stops.";
}

std::string FiniteWatch::Place(const std::string& reductions, int64_t number) const {
  std::string text = "update " + std::to_string(number) + " of " + reductions;
  if (epoch_ > 0) {
    text += ", after step " + std::to_string(step_) + " of epoch " + std::to_string(epoch_);
  }
  return text;
}

Status FiniteWatch::OfNotFinite(const SharedGradients& gradients, const FoundNotFinite& own,
                                const Votes& together, bool speaks, Steps* steps,
                                std::string* line) {
  Status status;
  // A consequence of the step before is no news, unless that step left its ranks out.
  const bool news = gradients.left_out || steps->last != steps->count - 1;
  steps->last = steps->count;
  const std::string place = Place(gradients.reductions, steps->count);
  if (action_ == OnNotFinite::kRaise && !gradients.left_out) {
    status = Status::InvalidArgument(
        "Gradients " + Whose(gradients, together) + " are not finite in " + place +
        ". Look at the batch of that step, or pass quarantine=True to the optimizer or the tape "
        "to leave such a rank out; TFHVD_ON_NOT_FINITE=warn goes on.");
  }
  const bool everybody = !(together[kVoteFinite] > 0);
  if (everybody && !gradients.left_out) {
    // A batch of one rank does not cause this. Therefore no rank is named, and only one rank
    // reports it.
    if (news && speaks && IsTold(++steps->own)) {
      *line = "gradients of all ranks are not finite in " + place + ", first that of " +
              Called(gradients, own.first) +
              ": the loss is not, or the weights were not before. TFHVD_ON_NOT_FINITE=raise looks "
              "at every value of every gradient, and ends the job with the first.";
    }
  } else if (own.first >= 0 && news && IsTold(++steps->own)) {
    *line = Described(gradients, own) + " on rank " + std::to_string(rank_) + " in " + place +
            ". Look at this rank's batch." + Consequence(gradients);
    if (steps->own > 1) *line += " It is update " + std::to_string(steps->own) + " of that kind.";
  }
  return status;
}

Status FiniteWatch::OfOutlier(const SharedGradients& gradients, const Accused& outlier,
                              Steps* steps, std::string* line) {
  const std::string text = "the gradient of " + Called(gradients, outlier.gradient) + " on rank " +
                           std::to_string(outlier.rank) + " is far larger than before in " +
                           Place(gradients.reductions, steps->count) +
                           ", and nothing else is like it on any rank";
  const std::string fault = "That is how a fault of this rank's machine looks.";
  if (on_outlier_ == OnOutlier::kRaise) {
    return Status::InvalidArgument("In this step " + text + ". " + fault +
                                   " TFHVD_ON_OUTLIER=skip leaves such updates out; warn goes on.");
  }
  if (outlier.rank != rank_ || !IsTold(++steps->outliers)) return Status::Ok();
  *line = text + ": it is " + sizes_.Times(gradients.sizes, outlier.gradient) +
          " times as large as nearly all before it. " + fault +
          (on_outlier_ == OnOutlier::kSkip
               ? " All gradients of that update are zeros."
               : " The update was made with it. TFHVD_ON_OUTLIER=skip leaves such updates out; "
                 "raise ends the job.");
  return Status::Ok();
}

Status FiniteWatch::StepOver(const SharedGradients& gradients, const FoundNotFinite& own,
                             const Votes& together, const ProcessSetTable::Members& ranks) {
  const bool speaks = ranks != nullptr && ranks->front() == rank_;
  std::string line;
  Status status;
  {
    MutexLock lock(&mutex_);
    Steps& steps = steps_[gradients.reductions];
    ++steps.count;
    const Accused outlier = sizes_.StepOver(gradients.sizes, together);
    if (together[kVoteOther] > 0) {
      status = OfNotFinite(gradients, own, together, speaks, &steps, &line);
    } else if (outlier.rank >= 0) {
      status = OfOutlier(gradients, outlier, &steps, &line);
    }
  }
  if (!line.empty()) log_.Warning(line);
  return status;
}

}  // namespace tfhvd
