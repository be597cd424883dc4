// TuningFiles: where the tuner's comparisons are logged, and what it has found is remembered from
// job to job.
//
// The log is a table of comma-separated values, a row each comparison. The memory is lines of
// numbers: step, bucket bytes, fusion threshold, alone from. Of a step the last line counts.
// Several jobs may use one memory at the same time: it is replaced as a whole, and the last one
// that writes it wins.
//
// Used by rank 0, by who runs the engine.
#pragma once

#include <string>
#include <vector>

#include "cc/base/log.h"
#include "cc/tune/tuner.h"

namespace tfhvd {

class TuningFiles {
 public:
  // Paths; "": none. `log` must outlive this object.
  TuningFiles(std::string table, std::string memory, const Log& log)
      : table_(std::move(table)), memory_(std::move(memory)), log_(log) {}

  // Empty where there is no memory yet; lines that cannot be read are left out.
  Tuner::Remembered Load() const;

  // Logs what has been decided, and remembers results. What cannot be written is warned of, once.
  void Write(const std::vector<Tuner::News>& news);

 private:
  void WriteRow(const Tuner::News& news);
  void Remember(const Tuner::News& news);
  void WarnOnce(const std::string& path);

  const std::string table_;
  const std::string memory_;
  const Log& log_;
  bool table_begun_ = false;
  bool warned_ = false;
};

// As a sentence for people: "buckets of 8388608 bytes, ...".
std::string Describe(const StepSettings& settings);

}  // namespace tfhvd
