// TuningFiles: the log of the tuner's comparisons, and the memory of its results from job to job.
//
// The log is a table of comma-separated values, with a row for each comparison. The memory has
// lines of numbers: step, bucket bytes, fusion threshold, alone from; the last line of a step is
// valid. Several jobs may use one memory at the same time: each replaces it as a whole, and the
// last writer wins.
//
// Used on rank 0, by the thread that runs the engine.
#pragma once

#include <string>
#include <vector>

#include "cc/base/log.h"
#include "cc/tune/tuner.h"

namespace tfhvd {

class TuningFiles {
 public:
  // Paths; "" means no file. `log` must outlive this object.
  TuningFiles(std::string table, std::string memory, const Log& log)
      : table_(std::move(table)), memory_(std::move(memory)), log_(log) {}

  // Returns an empty map if there is no memory yet; skips lines that cannot be read.
  Tuner::Remembered Load() const;

  // Logs the decisions, and stores results. Warns once of files that cannot be written.
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

// Returns a description for people: "buckets of 8388608 bytes, ...".
std::string Describe(const StepSettings& settings);

}  // namespace tfhvd
