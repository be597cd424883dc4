#include "cc/tune/tuning_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <sstream>

#include "cc/base/files.h"

namespace tfhvd {
namespace {

std::string Fields(const StepSettings& settings, const char* between) {
  return std::to_string(settings.bucket_bytes) + between +
         std::to_string(settings.fusion.threshold) + between +
         std::to_string(settings.fusion.alone_from);
}

std::string Hexadecimal(StepId step) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(step));
  return text;
}

std::string Percent(double change) {
  char text[32];
  std::snprintf(text, sizeof text, "%+.1f", 100.0 * change);
  return text;
}

// Makes the missing folders of `path`. If this fails, writing the file fails, too, and reports it.
void MakeFoldersOf(const std::string& path) {
  for (size_t end = path.find('/', 1); end != std::string::npos; end = path.find('/', end + 1)) {
    (void)mkdir(path.substr(0, end).c_str(), 0777);
  }
}

constexpr char kHeader[] =
    "step,verdict,change_percent,pairs,bucket_bytes,fusion_threshold,alone_bytes,"
    "against_bucket_bytes,against_fusion_threshold,against_alone_bytes\n";

}  // namespace

std::string Describe(const StepSettings& settings) {
  return "TFHVD_BUCKET_BYTES=" + std::to_string(settings.bucket_bytes) +
         " TFHVD_FUSION_THRESHOLD=" + std::to_string(settings.fusion.threshold) +
         " TFHVD_ALONE_BYTES=" + std::to_string(settings.fusion.alone_from);
}

Tuner::Remembered TuningFiles::Load() const {
  Tuner::Remembered remembered;
  std::string text;
  (void)ReadFile(memory_, &text);
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    StepId step = 0;
    StepSettings s;
    words >> std::hex >> step >> std::dec >> s.bucket_bytes >> s.fusion.threshold >>
        s.fusion.alone_from;
    const bool possible =
        s.bucket_bytes >= 0 && s.fusion.threshold >= 0 && s.fusion.alone_from >= 0;
    if (words && possible) remembered[step] = s;
  }
  return remembered;
}

void TuningFiles::Write(const std::vector<Tuner::News>& news) {
  for (const Tuner::News& each : news) {
    if (!table_.empty()) WriteRow(each);
    if (!each.what.done) continue;
    if (!memory_.empty()) Remember(each);
    log_.Info("autotune: " + each.what.verdict + ": " + Describe(each.what.challenger) + " (" +
              Percent(each.what.change) + "% of the time of a step)");
  }
}

void TuningFiles::WriteRow(const Tuner::News& news) {
  std::ostringstream out;
  if (!table_begun_) out << kHeader;
  out << Hexadecimal(news.step) << ',' << (news.what.done ? "result: " : "") << news.what.verdict
      << ',' << Percent(news.what.change) << ',' << news.what.pairs << ','
      << Fields(news.what.challenger, ",") << ',' << Fields(news.what.incumbent, ",") << '\n';
  const WriteMode mode = table_begun_ ? WriteMode::kAppend : WriteMode::kReplace;
  table_begun_ = true;
  if (!WriteFile(table_, out.str(), mode)) WarnOnce(table_);
}

void TuningFiles::Remember(const Tuner::News& news) {
  Tuner::Remembered all = Load();
  all[news.step] = news.what.challenger;
  MakeFoldersOf(memory_);
  const std::string beside = memory_ + "." + std::to_string(getpid());
  std::ostringstream out;
  for (const auto& [step, settings] : all) {
    out << Hexadecimal(step) << ' ' << Fields(settings, " ") << '\n';
  }
  if (!WriteFile(beside, out.str(), WriteMode::kReplace)) return WarnOnce(memory_);
  if (std::rename(beside.c_str(), memory_.c_str()) != 0) WarnOnce(memory_);
}

void TuningFiles::WarnOnce(const std::string& path) {
  if (warned_) return;
  warned_ = true;
  log_.Warning("autotune cannot write " + path + ": " + std::strerror(errno) +
               ". Training goes on.");
}

}  // namespace tfhvd
