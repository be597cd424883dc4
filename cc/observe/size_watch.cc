#include "cc/observe/size_watch.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace tfhvd {

int64_t SizeWatch::Most(const std::string& name) {
  const MutexLock lock(&mutex_);
  return all_[name].sampled ? kSample : 0;
}

void SizeWatch::Add(const std::string& name, const Numbered& some, std::chrono::nanoseconds took) {
  const MutexLock lock(&mutex_);
  Gradients* const gradients = &all_[name];
  gradients->looked += took;
  for (const auto& [number, size] : some) {
    const auto at = static_cast<size_t>(number);
    if (at >= gradients->now.size()) gradients->now.resize(at + 1);
    gradients->now[at] = size;
  }
}

Suspicion SizeWatch::Judge(const std::string& name) {
  const MutexLock lock(&mutex_);
  const Gradients& gradients = all_[name];
  return gradients.history.Judge(gradients.now);
}

Accused SizeWatch::StepOver(const std::string& name, const Votes& together) {
  if (name.empty()) return {};
  const auto now = std::chrono::steady_clock::now();
  const MutexLock lock(&mutex_);
  Gradients* const gradients = &all_[name];
  ++gradients->steps;
  if (gradients->steps == kSettled) {
    gradients->begin = now;
    gradients->looked = {};
  } else if (gradients->steps == kSettled + kMeasured) {
    gradients->sampled = may_sample_ && gradients->looked * kShare > now - gradients->begin;
  }
  const Accused outlier = OutlierOf(together);
  if (outlier.rank < 0) gradients->history.Add(gradients->now);
  return outlier;
}

std::string SizeWatch::Times(const std::string& name, int64_t number) {
  const MutexLock lock(&mutex_);
  const Gradients& gradients = all_[name];
  const auto at = static_cast<size_t>(number);
  char text[32];
  std::snprintf(text, sizeof text, "%.3g",
                std::exp2(static_cast<double>(gradients.history.Above(at, gradients.now[at]))));
  return text;
}

}  // namespace tfhvd
